"""TensorFlow writes lines of its own to standard error that no setting turns off: greetings about drivers and CPU
instructions, and a few more about each damaged image, of which we have said so already."""

import contextlib
import os
import sys
from collections.abc import Iterator


def import_tensorflow_quietly(quiet: bool = False) -> None:
    """Imports TensorFlow and lets it look for devices, its greetings left out; errors are raised all the same.

    It takes seconds, so a terminal gets a line first, unless `quiet`.
    """
    if sys.stderr.isatty() and not quiet:
        print("attention-apps: loading TensorFlow and the model ...", file=sys.stderr, flush=True)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with only_python_on_stderr():
        import tensorflow as tf

        tf.config.list_physical_devices()


@contextlib.contextmanager
def only_python_on_stderr() -> Iterator[None]:
    """Lets through what Python writes to `sys.stderr`, and nothing that C++ writes to the file descriptor itself."""
    before = sys.stderr
    before.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        with contextlib.ExitStack() as stack:
            if _file_descriptor(before) == 2:
                sys.stderr = stack.enter_context(
                    open(kept, "w", buffering=1, encoding=before.encoding, errors=before.errors, closefd=False)
                )
            yield
    finally:
        sys.stderr = before
        os.dup2(kept, 2)
        os.close(kept)


def _file_descriptor(file) -> int | None:
    try:
        return file.fileno()
    except (OSError, ValueError, AttributeError):
        return None
