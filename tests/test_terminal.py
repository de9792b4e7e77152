import io
import os
import subprocess
import sys

import pytest

from attention_apps.terminal import print_line, printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("photo.jpg", "photo.jpg"),
        ("日本 é \U0001f600", "日本 é \U0001f600"),
        ("a\tb", "a\tb"),
        ("a\\n", "a\\n"),
        ("a\nattention-apps: all is well", "a\\nattention-apps: all is well"),
        ("\x1b]0;title\x07\r\x9b2J\x7f", "\\x1b]0;title\\x07\\r\\x9b2J\\x7f"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("a\u2028b\u2029c\x85d", "a\\u2028b\\u2029c\\x85d"),
        ("\udcff", "\\udcff"),
    ],
)
def test_control_characters_are_escaped(text, expected):
    assert printable(text) == expected


def test_no_character_at_all_begins_a_line_or_controls_a_terminal():
    text = printable("".join(map(chr, range(0x110000))))
    assert len(text.splitlines()) == 1
    assert not any((ord(letter) < 32 and letter != "\t") or 0x7F <= ord(letter) < 0xA0 for letter in text)
    text.encode()


def test_letters_that_the_terminal_has_not_are_escaped():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print_line("é\n日", file)
    assert file.buffer.getvalue() == b"\\xe9\\n\\u65e5\n"


# Silence, in processes of their own, because it changes the file descriptors of the whole process

ONLY_PYTHON = """
import os, sys
from attention_apps.terminal import only_python_on_stderr
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
    done = subprocess.run([sys.executable, "-c", ONLY_PYTHON], capture_output=True, text=True, timeout=60)
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
    code = "import os; os.close(2)\nfrom attention_apps.terminal import only_python_on_stderr\n"
    assert run(code + "with only_python_on_stderr(): print('done')").stdout == "done\n"


QUIETLY = """
import sys
from attention_apps.terminal import import_tensorflow_quietly
import_tensorflow_quietly()
print("tensorflow" in sys.modules)
"""

LOADING = """
import sys
from attention_apps.terminal import import_tensorflow_quietly

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
    done = subprocess.run([sys.executable, "-c", QUIETLY], capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    assert done.stdout == "True\n"
