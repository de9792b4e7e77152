"""What reaches the terminal: text from outside made safe, and no log lines of TensorFlow.

TensorFlow writes lines about drivers and CPU instructions to standard error while it is imported. It writes them from
C++, and no setting turns them off.
"""

import contextlib
import importlib.abc
import importlib.util
import os
import sys
import unicodedata
from collections.abc import Iterator
from typing import Any, TextIO

# Besides control characters: those that reorder or end lines, and halves of surrogate pairs.
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    """Return the text on one line, with control characters, line ends and text direction controls as escapes.

    Use it for everything that came from outside: names of files, keys and words of a preset, fields of a manifest,
    messages of libraries. Otherwise a name could move the cursor, hide text or fake a line of output.

    Example:

        printable("a\\x1b[2J\\nb")   # 'a\\\\x1b[2J\\\\nb'
    """
    if text.isascii() and text.isprintable():
        return text
    letters = []
    for letter in text:
        is_control = unicodedata.category(letter) in _ESCAPED_CATEGORIES or letter in _BIDI_CONTROLS
        is_escaped = is_control and letter != "\t"
        letters.append(letter.encode("unicode_escape").decode("ascii") if is_escaped else letter)
    return "".join(letters)


def print_line(text: str, file: TextIO | None = None) -> None:
    """Print one line at once. Letters that the terminal cannot show become escapes."""
    file = sys.stdout if file is None else file
    encoding = getattr(file, "encoding", None) or "utf-8"
    line = printable(text).encode(encoding, "backslashreplace").decode(encoding)
    print(line, file=file, flush=True)


def import_tensorflow_quietly(quiet: bool = False) -> None:
    """Import TensorFlow and let it look for devices, without log lines. Errors are still raised.

    This takes seconds, so a terminal gets a line first, unless `quiet`.
    """
    if sys.stderr.isatty() and not quiet:
        print("attention-apps: loading TensorFlow and the model ...", file=sys.stderr, flush=True)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with only_python_on_stderr():
        import tensorflow as tf

        tf.config.list_physical_devices()


def silence_tensorflow() -> None:
    """Import TensorFlow without log lines, whenever that happens. Its errors are still raised as exceptions.

    Does nothing if TensorFlow was imported before, or if the user has set `TF_CPP_MIN_LOG_LEVEL`.
    """
    if "tensorflow" in sys.modules or "TF_CPP_MIN_LOG_LEVEL" in os.environ:
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    sys.meta_path.insert(0, _TensorFlowFinder())


class _TensorFlowFinder(importlib.abc.MetaPathFinder):
    """Finds TensorFlow as Python does, once, and lets only Python write to standard error while it loads."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_quietly(module):
                with only_python_on_stderr():
                    load(module)

            spec.loader.exec_module = load_quietly  # type: ignore[method-assign]
        return spec


@contextlib.contextmanager
def only_python_on_stderr() -> Iterator[None]:
    """Let through what Python writes to `sys.stderr`, and nothing that C++ writes to the file descriptor itself."""
    before = sys.stderr
    try:
        kept = None if before is None else os.dup(2)
    except OSError:
        kept = None
    if kept is None:  # a process without standard error
        yield
        return
    before.flush()
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        try:
            is_redirected = before.fileno() == 2
        except (OSError, ValueError, AttributeError):
            is_redirected = False
        with contextlib.ExitStack() as stack:
            if is_redirected:
                sys.stderr = stack.enter_context(
                    open(kept, "w", buffering=1, encoding=before.encoding, errors=before.errors, closefd=False)
                )
            yield
    finally:
        sys.stderr = before
        os.dup2(kept, 2)
        os.close(kept)
