"""TensorFlow greets with lines about drivers and CPU instructions that no setting turns off."""

import contextlib
import os
import sys
from collections.abc import Iterator


def import_tensorflow_quietly() -> None:
    """Imports TensorFlow and lets it look for devices, its greetings left out; errors are raised all the same."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with _without_stderr():
        import tensorflow as tf

        tf.config.list_physical_devices()


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    """C++ writes to the file descriptor itself, not to `sys.stderr`."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
