"""Fault injection in the style of SQLite: make the n-th write, rename or fsync fail, for every n."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attention_apps import files

OPERATIONS = ("write", "sync", "sync_folder", "rename", "exchange")


class Faults:
    """Counts the operations of `attention_apps.files` and fails at one of them. A failing write is torn in half."""

    def __init__(self, fail_at: int | None, fail: Callable[[], None]):
        self.count = 0
        self.fail_at = fail_at
        self.fail = fail

    def install(self, monkeypatch) -> None:
        for name in OPERATIONS:
            monkeypatch.setattr(files, name, self._wrapped(name, getattr(files, name)))

    def _wrapped(self, name, operation):
        def run(*arguments):
            self.count += 1
            if self.count == self.fail_at:
                if name == "write":
                    file, data = arguments
                    file.write(data[: len(data) // 2])
                self.fail()
            return operation(*arguments)

        return run


def every_error(monkeypatch, action: Callable[[], None], prepare: Callable[[], None]) -> Iterator[int]:
    """Run `prepare` and `action` once for each operation of the action, which fails with a full disk; then yield."""

    def fail():
        raise OSError(errno.ENOSPC, "No space left on device")

    for number in range(1, _count(monkeypatch, action, prepare) + 1):
        prepare()
        with monkeypatch.context() as patch:
            Faults(number, fail).install(patch)
            with pytest.raises(OSError, match="No space left on device"):
                action()
        yield number


def every_kill(monkeypatch, action: Callable[[], None], prepare: Callable[[], None]) -> Iterator[int]:
    """As `every_error`, but the process that runs the action dies at once: no clean-up code runs."""
    for number in range(1, _count(monkeypatch, action, prepare) + 1):
        prepare()
        child = os.fork()
        if child == 0:
            try:
                Faults(number, lambda: os._exit(9)).install(monkeypatch)
                action()
            finally:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        yield number


def _count(monkeypatch, action, prepare) -> int:
    prepare()
    with monkeypatch.context() as patch:
        faults = Faults(None, lambda: None)
        faults.install(patch)
        action()
    assert faults.count > 0
    return faults.count


def leftovers(folder: Path) -> list[str]:
    """Hidden files and folders, which are temporary ones."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))
