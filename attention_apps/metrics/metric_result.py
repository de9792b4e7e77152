"""What every metric returns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np


@dataclass(frozen=True, eq=False)
class MetricResult:
    """A metric's figure for a corpus, the figure of each item, and what is needed to compute it on a part.

    Attributes:
        name: the metric's name.
        score: the figure of the whole corpus.
        items: `(items,)`, the figure of each item on its own.
        statistics: `(items, counts)`, what each item adds to the corpus: rows may be summed.
        combine: from such a sum, `(counts,)`, to the figure.
        details: further figures of the corpus by name.
    """

    name: str
    score: float
    items: np.ndarray
    statistics: np.ndarray
    combine: Callable[[np.ndarray], float]
    details: Mapping[str, float | str] = field(default_factory=dict)

    @classmethod
    def mean_of(cls, name: str, items: list[float], details: Mapping[str, float | str] | None = None) -> Self:
        """A metric whose corpus figure is the mean over its items."""
        items = np.asarray(items, dtype=np.float64)
        statistics = np.stack([items, np.ones_like(items)], axis=1)
        return cls(name, float(np.mean(items)), items, statistics, _mean, details or {})


def _mean(total: np.ndarray) -> float:
    return float(total[0] / total[1])
