"""BLEU as reported in the captioning literature."""

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np

from attention_apps.metrics.caption_tokenizer import caption_words
from attention_apps.metrics.metric_result import MetricResult
from attention_apps.metrics.ngrams import count_ngrams
from attention_apps.metrics.text_pairs import References, check_pairs

# coco-caption's constants against division by zero. They replace smoothing.
_SMALL = 1e-9
_TINY = 1e-15


def bleu(hypotheses: Sequence[str], references: References, max_order: int = 4) -> MetricResult:
    """Compute corpus BLEU from 0 to 1, with the tokens, closest reference length and constants of coco-caption.

    `details` holds `bleu_1` up to `bleu_{max_order}`. `score` and `items` are for the highest order.

    Reference: Papineni et al. 2002, section 2.3; the evaluation server of Chen et al. 2015 (COCO captions).
    """
    if max_order < 1:
        raise ValueError(f"`max_order` must be at least 1. Received: max_order={max_order}")
    hypotheses, references = check_pairs(hypotheses, references)
    rows = [_statistics(*pair, max_order) for pair in zip(hypotheses, references)]
    statistics = np.asarray(rows, dtype=np.float64)
    scores = _scores(statistics.sum(axis=0), max_order)
    return MetricResult(
        name=f"bleu_{max_order}",
        score=scores[-1],
        items=np.asarray([_score(row, max_order) for row in statistics]),
        statistics=statistics,
        combine=partial(_score, max_order=max_order),
        details={f"bleu_{order}": score for order, score in enumerate(scores, start=1)},
    )


def _statistics(hypothesis: str, references: list[str], max_order: int) -> list[int]:
    """Return length and closest reference length, then for each order the matching n-grams and all n-grams."""
    words = caption_words(hypothesis)
    reference_words = [caption_words(reference) for reference in references]
    closest = min((abs(len(other) - len(words)), len(other)) for other in reference_words)[1]
    limits = [Counter() for _ in range(max_order)]
    for other in reference_words:
        for limit, counts in zip(limits, count_ngrams(other, max_order)):
            limit |= counts
    matching = [(counts & limit).total() for counts, limit in zip(count_ngrams(words, max_order), limits)]
    guessed = [max(0, len(words) - order) for order in range(max_order)]
    return [len(words), closest, *matching, *guessed]


def _scores(total: np.ndarray, max_order: int) -> list[float]:
    """Compute BLEU of each order from summed statistics."""
    length, reference_length = total[:2].tolist()
    precisions = (total[2 : 2 + max_order] + _TINY) / (total[2 + max_order :] + _SMALL)
    ratio = (length + _TINY) / (reference_length + _SMALL)
    brevity = math.exp(1 - 1 / ratio) if ratio < 1 else 1.0
    products = np.cumprod(precisions).tolist()
    return [brevity * product ** (1 / order) for order, product in enumerate(products, start=1)]


def _score(total: np.ndarray, max_order: int) -> float:
    return _scores(total, max_order)[-1]
