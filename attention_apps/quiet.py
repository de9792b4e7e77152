"""Keeps what TensorFlow writes to standard error away from users.

TensorFlow greets with lines about drivers and CPU instructions that no setting turns off. It writes them from C++ while
it is imported.
"""

import contextlib
import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import Any


def silence_tensorflow() -> None:
    """Import TensorFlow without log lines, whenever that happens. Its errors are still raised as exceptions.

    Does nothing if TensorFlow was imported before, or if the user has set `TF_CPP_MIN_LOG_LEVEL`.
    """
    if "tensorflow" in sys.modules or "TF_CPP_MIN_LOG_LEVEL" in os.environ:
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    sys.meta_path.insert(0, _TensorFlowFinder())


class _TensorFlowFinder(importlib.abc.MetaPathFinder):
    """Finds TensorFlow as Python does, once, and lets nothing but Python write to standard error while it loads."""

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
    if before is None or not _is_open(2):  # a process without standard error
        yield
        return
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


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _file_descriptor(file) -> int | None:
    try:
        return file.fileno()
    except (OSError, ValueError, AttributeError):
        return None
