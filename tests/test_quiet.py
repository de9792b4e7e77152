"""Seen in a process of its own, as it changes the file descriptors of the whole process."""

import os
import subprocess
import sys

CODE = """
import os, sys
from attention_apps.quiet import only_python_on_stderr
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


def run(code, **environment):
    others = {name: value for name, value in os.environ.items() if not name.startswith("TF_CPP")}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env={**others, **environment}
    )


ANSWER = """
import attention_apps
from attention_apps.layers import AdditiveAttention
application = attention_apps.load("pointer_generator_headlines")
print(application.summarize("The old bridge was closed on Monday after heavy rain, the city said.").error)
"""


def test_importing_and_calling_the_package_writes_no_log_lines():
    done = run(ANSWER)
    assert done.stderr == ""
    assert done.stdout == "None\n"


def test_whoever_sets_the_log_level_gets_the_lines():
    code = "import attention_apps, sys; print(*[type(finder).__name__ for finder in sys.meta_path])"
    assert "_TensorFlowFinder" in run(code).stdout
    assert "_TensorFlowFinder" not in run(code, TF_CPP_MIN_LOG_LEVEL="1").stdout


def test_a_process_without_standard_error_is_left_alone():
    code = "import os; os.close(2)\nfrom attention_apps.quiet import only_python_on_stderr\n"
    assert run(code + "with only_python_on_stderr(): print('done')").stdout == "done\n"
