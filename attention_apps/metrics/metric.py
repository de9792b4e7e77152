"""What all metrics share: the checks of their arguments, their result, and its confidence interval."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

References = Sequence[str] | Sequence[Sequence[str]]


def check_texts(name: str, texts: Sequence[str]) -> list[str]:
    """Return the texts as a list. Raise an error if one is not a string."""
    if isinstance(texts, str):
        raise TypeError(f"`{name}` must be a list of strings. Received one string: {texts!r}")
    texts = list(texts)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"`{name}[{index}]` must be a string. Received: {text!r}")
    return texts


def check_same_length(**texts: Sequence) -> None:
    """Check that both arguments have the same number of items, and at least one."""
    (first, some), (second, others) = texts.items()
    if len(some) != len(others):
        raise ValueError(
            f"`{first}` and `{second}` must have the same length. "
            f"Received: {len(some)} {first} and {len(others)} {second}"
        )
    if not some:
        raise ValueError(f"`{first}` must hold at least one item. Received: none")


def check_references(references: References) -> list[list[str]]:
    """Return one list of references per item. Raise an error if a reference is blank or an item has none."""
    if isinstance(references, str):
        raise TypeError(f"`references` must be a list. Received one string: {references!r}")
    lists = [[item] if isinstance(item, str) else list(item) for item in references]
    for index, item in enumerate(lists):
        check_texts(f"references[{index}]", item)
        if not item or not all(text.strip() for text in item):
            raise ValueError(f"`references[{index}]` must not be empty or blank. Received: {references[index]!r}")
    return lists


def check_pairs(hypotheses: Sequence[str], references: References) -> tuple[list[str], list[list[str]]]:
    """Return the hypotheses and the list of references of each."""
    hypotheses, references = check_texts("hypotheses", hypotheses), check_references(references)
    check_same_length(hypotheses=hypotheses, references=references)
    return hypotheses, references


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
        return cls(
            name=name,
            score=float(np.mean(items)),
            items=items,
            statistics=statistics,
            combine=lambda total: float(total[0] / total[1]),
            details=details or {},
        )


def bootstrap_interval(
    result: MetricResult,
    confidence: float = 0.95,
    num_samples: int = 1000,
    seed: int = 0,
    baseline: MetricResult | None = None,
) -> tuple[float, float]:
    """Compute the percentile bootstrap interval of a metric's corpus score. Items are drawn with replacement.

    The statistics of the drawn items are summed. A corpus metric (BLEU, WER) is thus recomputed for each draw, not
    averaged over items.

    Args:
        baseline: the same metric of another system on the same items. The interval is then that of the difference,
            with both scores computed from the same draws (Koehn 2004).
    """
    if baseline is not None and len(baseline.statistics) != len(result.statistics):
        counts = f"{len(baseline.statistics)} and {len(result.statistics)} items"
        raise ValueError(f"`baseline` must be of the same items. Received: {counts}")
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` must be between 0 and 1. Received: confidence={confidence}")
    if num_samples < 1:
        raise ValueError(f"`num_samples` must be at least 1. Received: num_samples={num_samples}")
    generator = np.random.default_rng(seed)
    size = len(result.statistics)
    scores = []
    for _ in range(num_samples):
        times_drawn = np.bincount(generator.integers(size, size=size), minlength=size)
        score = result.combine(times_drawn @ result.statistics)
        if baseline is not None:
            score -= baseline.combine(times_drawn @ baseline.statistics)
        scores.append(score)
    outside = 50 * (1 - confidence)
    low, high = np.percentile(scores, [outside, 100 - outside])
    return float(low), float(high)
