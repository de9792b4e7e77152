"""Runs an application on many inputs, on several machines, with Ray Data: `attention-apps batch`.

`plan` divides the inputs into parts and `inputs` reads the inputs of a part; `parts` writes their rows to a file;
`cluster` does so on workers. Only `cluster` needs Ray.
"""
