"""Run an application on many inputs, on several machines, with Ray Data: `attention-apps batch`.

`inputs` reads the inputs of a part, `results` divides the inputs into parts and writes the rows of a part to a file,
and `cluster` answers the inputs on the workers. Only running the workers needs Ray.
"""
