"""How far into a long recording a recognizer is."""

import contextlib
import os
import sys
from typing import Any, Self

from rich.console import Console
from rich.errors import LiveError
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from attention_apps.preprocessing.audio import audio_seconds


class ListeningProgress:
    """A bar on a terminal for each recording that is heard in more than one piece; none next to another bar.

    Args:
        quiet: whether there is none at all.
    """

    def __init__(self, quiet: bool = False):
        console = Console(stderr=True)
        columns = TextColumn("{task.completed:.0f} s"), BarColumn(), TimeRemainingColumn()
        # Redirected, what the caller prints would come out where the bar is.
        redirected = {"redirect_stdout": False, "redirect_stderr": False}
        self._hidden = quiet or not console.is_terminal or sys.stdout.isatty()
        self._progress = Progress(*columns, console=console, transient=True, **redirected)
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._progress.live.is_started:
            self._progress.stop()

    def update(self, source: Any, seconds: float, is_last: bool) -> None:
        """Tells that a recording has been heard up to `seconds`."""
        if self._hidden:
            return
        if self._task is None and not is_last:
            self._begin(source)
        if self._task is not None:
            self._progress.update(self._task, completed=seconds)
        if is_last and self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None

    def _begin(self, source: Any) -> None:
        try:
            self._progress.start()
        except LiveError:
            self._hidden = True
            return
        total = None
        if isinstance(source, str | os.PathLike):
            with contextlib.suppress(ValueError, OSError):
                total = audio_seconds(source)
        self._task = self._progress.add_task("listening", total=total)
