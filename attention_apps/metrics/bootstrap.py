"""Confidence intervals of metrics by bootstrap resampling."""

import numpy as np

from attention_apps.metrics.metric_result import MetricResult


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
