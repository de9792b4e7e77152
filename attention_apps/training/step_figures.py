"""The figures of training steps between two rows of the log."""

import time
from collections.abc import Collection

import numpy as np
import tensorflow as tf

# After this many steps in a row whose gradients are not finite, a run stops: it will not recover by itself.
MOST_FAILURES = 50
_NOT_TOLD = ("tokens", "finite")


class StepFigures:
    """Collects what each step returns, and fetches it from the device only when asked."""

    def __init__(self):
        self._skipped = 0
        self._pending: list[tf.Tensor] = []
        self._failures = 0
        self.clear()

    def clear(self) -> None:
        """Begins a new window."""
        self._rows: list[np.ndarray] = []
        self._since = time.monotonic()

    def add(self, figures: tf.Tensor) -> None:
        self._pending.append(figures)

    def fetch(self, names: list[str], counts: Collection[str] = ()) -> dict[str, float]:
        """The figures of the window and its `tokens_per_second`; empty without a good step.

        Args:
            names: of all figures.
            counts: those of them that are added up. Of the others there is the mean, of losses by token.
        """
        rows, self._pending = [np.asarray(figures) for figures in self._pending], []
        for row in rows:
            self._count_failure(row[names.index("finite")] == 0)
        self._rows += [row for row in rows if row[names.index("finite")]]
        if not self._rows:
            return {}
        table = np.stack(self._rows)
        weights = table[:, names.index("tokens")]
        columns = {name: column for name, column in zip(names, table.T, strict=True) if name not in _NOT_TOLD}
        figures = {
            name: column.sum() if name in counts else np.average(column, weights=weights)
            for name, column in columns.items()
        }
        speed = weights.sum() / max(time.monotonic() - self._since, 1e-9)
        return {name: float(figure) for name, figure in {**figures, "tokens_per_second": speed}.items()}

    def take_skipped(self) -> int:
        """How many steps were skipped since this was last asked."""
        skipped, self._skipped = self._skipped, 0
        return skipped

    def _count_failure(self, failed: bool) -> None:
        self._failures = self._failures + 1 if failed else 0
        self._skipped += int(failed)
        if self._failures >= MOST_FAILURES:
            raise FloatingPointError(
                f"The gradients of {MOST_FAILURES} steps in a row were not finite. The weights are as they were before "
                "these steps; a lower learning rate, a longer warm-up or stronger clipping may help, and so may a look "
                "at the data."
            )
