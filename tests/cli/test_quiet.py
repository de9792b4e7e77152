"""Seen in a process of its own, as it changes the file descriptors of the whole process."""

import subprocess
import sys

CODE = """
import os, sys
from attention_apps.cli.quiet import only_python_on_stderr
print("before", file=sys.stderr)
try:
    with only_python_on_stderr():
        os.write(2, b"from elsewhere\\n")
        print("within", file=sys.stderr)
        raise KeyError
except KeyError:
    os.write(2, b"native again\\n")
print("after", file=sys.stderr)
"""


def test_only_python_writes_to_standard_error():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stderr.splitlines() == ["before", "within", "native again", "after"]
    assert done.stdout == ""
