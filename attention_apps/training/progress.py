"""What the person in front of the terminal sees of a run."""

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

# Without a terminal there is a plain line every so many seconds.
PLAIN_SECONDS = 30.0


class ProgressLine:
    """One live line on the error stream; plain lines where that is no terminal; nothing where quiet."""

    def __init__(self, quiet: bool = False):
        self._console = None if quiet else Console(stderr=True)
        self._live = None
        self._printed = 0.0

    def __enter__(self) -> "ProgressLine":
        if self._console is not None and self._console.is_terminal:
            columns = TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn()
            self._live = Progress(*columns, console=self._console, refresh_per_second=4, transient=True)
            self._task = self._live.add_task("starting", total=1.0)
            self._live.start()
        return self

    def __exit__(self, *_) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, text: str, fraction: float, seconds_left: float) -> None:
        """Shows where the run is.

        Args:
            text: epoch, step, loss and speed.
            fraction: how much of the run is done.
        """
        if self._console is None:
            return
        text = f"{text}, {format_duration(seconds_left)} left"
        if self._live is not None:
            self._live.update(self._task, description=text, completed=min(fraction, 1.0))
        elif time.monotonic() - self._printed >= PLAIN_SECONDS:
            self._printed = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """A line that stays."""
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        elif self._console is not None:
            print(text, file=sys.stderr, flush=True)


def format_duration(seconds: float) -> str:
    """`75` as `1:15`, `7500` as `2:05:00`."""
    minutes, seconds = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
