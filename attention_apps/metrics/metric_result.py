"""The result of a metric."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np


@dataclass(frozen=True, eq=False)
class MetricResult:
    """A metric's score for a corpus and for each item, with the statistics to compute it for a subset.

    Attributes:
        name: the metric's name.
        score: the score of the whole corpus.
        items: `(items,)`, the score of each item alone.
        statistics: `(items, counts)`, the additive statistics of each item.
        combine: computes a score from summed statistics, `(counts,)`.
        details: further corpus scores by name.
    """

    name: str
    score: float
    items: np.ndarray
    statistics: np.ndarray
    combine: Callable[[np.ndarray], float]
    details: Mapping[str, float | str] = field(default_factory=dict)

    @classmethod
    def mean_of(cls, name: str, items: list[float], details: Mapping[str, float | str] | None = None) -> Self:
        """Build the result of a metric whose corpus score is the mean over items."""
        items = np.asarray(items, dtype=np.float64)
        statistics = np.stack([items, np.ones_like(items)], axis=1)
        return cls(name, float(np.mean(items)), items, statistics, _mean, details or {})


def _mean(total: np.ndarray) -> float:
    return float(total[0] / total[1])
