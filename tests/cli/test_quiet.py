import subprocess
import sys

import pytest

CODE = """
import sys
from attention_apps.cli.quiet import import_tensorflow_quietly
import_tensorflow_quietly()
print("tensorflow" in sys.modules)
"""


LOADING = """
import sys
from attention_apps.cli.quiet import import_tensorflow_quietly

class Terminal:
    def isatty(self):
        return True

    def __getattr__(self, name):
        return getattr(sys.__stderr__, name)

sys.modules["tensorflow"] = None  # whoever imports it now gets an error
sys.stderr = Terminal() if sys.argv[1] == "terminal" else sys.stderr
try:
    import_tensorflow_quietly(quiet=sys.argv[2] == "quiet")
except ImportError:
    pass
"""


@pytest.mark.parametrize(
    ("where", "how", "expected"),
    [
        ("terminal", "loud", "attention-apps: loading TensorFlow and the model ...\n"),
        ("terminal", "quiet", ""),
        ("pipe", "loud", ""),
    ],
)
def test_a_terminal_is_told_of_loading_before_tensorflow_is_imported(where, how, expected):
    done = subprocess.run([sys.executable, "-c", LOADING, where, how], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, expected)


def test_looking_for_devices_writes_nothing():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    assert done.stdout == "True\n"
