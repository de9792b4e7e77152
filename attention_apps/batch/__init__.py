"""Run an application on many inputs, on several machines, with Ray Data: `attention-apps batch`.

`plan` divides the inputs into parts, `inputs` reads the inputs of a part, `worker` answers them, `storage` writes the
rows of a part to a file, and `cluster` runs the workers. Only `cluster` needs Ray.
"""
