"""The figures of training steps between two rows of the log."""

import time

import numpy as np
import tensorflow as tf

# After this many steps in a row whose gradients are not finite, a run stops: it will not recover by itself.
MOST_FAILURES = 50


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

    def fetch(self, names: list[str]) -> dict[str, float]:
        """The means of the window, of the losses by token, and the `tokens_per_second`; empty without a good step."""
        rows, self._pending = [np.asarray(figures) for figures in self._pending], []
        for row in rows:
            self._count_failure(row[names.index("finite")] == 0)
        self._rows += [row for row in rows if row[names.index("finite")]]
        if not self._rows:
            return {}
        table = np.stack(self._rows)
        weights = table[:, names.index("tokens")]
        means = dict(zip(names, (np.average(column, weights=weights) for column in table.T), strict=True))
        speed = weights.sum() / max(time.monotonic() - self._since, 1e-9)
        dropped = ("tokens", "finite")
        return {
            **{name: float(mean) for name, mean in means.items() if name not in dropped},
            "tokens_per_second": float(speed),
        }

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
