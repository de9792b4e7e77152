"""Metrics of sentence compression."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from attention_apps.metrics.metric_result import MetricResult
from attention_apps.metrics.text_pairs import References, check_pairs, check_same_length, check_texts


def token_f1(hypotheses: Sequence[str], references: References) -> MetricResult:
    """Compute token F1 from 0 to 1 between bags of words: the mean over items of the best reference.

    Words are split at spaces and not normalized. `details` holds the mean `precision` and `recall`.

    Reference: Filippova et al. 2015 (F1 of the kept tokens).
    """
    hypotheses, references = check_pairs(hypotheses, references)
    scores = [max(_overlap(text, other) for other in texts) for text, texts in zip(hypotheses, references)]
    items, precision, recall = np.asarray(scores, dtype=np.float64).T
    details = {"precision": float(precision.mean()), "recall": float(recall.mean())}
    return MetricResult.mean_of("token_f1", items, details)


def compression_rate(texts: Sequence[str], sources: Sequence[str]) -> MetricResult:
    """Compute the number of words in each text divided by those in its source: the mean over items.

    Some papers count characters instead of words.
    """
    texts, sources = check_texts("texts", texts), check_texts("sources", sources)
    check_same_length(texts=texts, sources=sources)
    for index, source in enumerate(sources):
        if not source.strip():
            raise ValueError(f"`sources[{index}]` must not be blank. Received: {source!r}")
    items = [len(text.split()) / len(source.split()) for text, source in zip(texts, sources)]
    return MetricResult.mean_of("compression_rate", items)


def _overlap(hypothesis: str, reference: str) -> tuple[float, float, float]:
    """Return F1, precision and recall."""
    kept, wanted = Counter(hypothesis.split()), Counter(reference.split())
    common = (kept & wanted).total()
    if not common:
        return 0.0, 0.0, 0.0
    precision, recall = common / kept.total(), common / wanted.total()
    return 2 * precision * recall / (precision + recall), precision, recall
