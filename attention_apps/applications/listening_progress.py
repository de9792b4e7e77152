"""How far into a long recording a recognizer is."""

import contextlib
import os
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from attention_apps.preprocessing.audio import header_seconds


class ListeningProgress:
    """A bar on the terminal of stderr for each recording that is heard in more than one piece.

    Args:
        quiet: whether there is none at all, as where there is another bar.
    """

    def __init__(self, quiet: bool = False):
        console = Console(stderr=True)
        columns = TextColumn("{task.completed:.0f} s"), BarColumn(), TimeRemainingColumn()
        # Redirected, what the caller prints would come out where the bar is.
        redirected = {"redirect_stdout": False, "redirect_stderr": False}
        self._hidden = quiet or not console.is_terminal
        self._progress = Progress(*columns, console=console, transient=True, **redirected)
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.end()

    def update(self, source: Any, seconds: float) -> None:
        """Tells that a recording has been heard up to `seconds`, and that there is more of it."""
        if self._hidden:
            return
        if self._task is None:
            self._task = self._progress.add_task("listening", total=_total_seconds(source))
            self._progress.start()
        self._progress.update(self._task, completed=seconds)

    def end(self) -> None:
        """Takes away the bar of a recording, so that what is printed of it has the line to itself."""
        if self._task is not None:
            self._progress.stop()
            self._progress.remove_task(self._task)
            self._task = None


def _total_seconds(source: Any) -> float | None:
    if isinstance(source, str | os.PathLike):
        with contextlib.suppress(ValueError, OSError):
            return header_seconds(source)
    return None
