"""ROUGE F1 of summaries."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from attention_apps.metrics.metric_result import MetricResult
from attention_apps.metrics.stemming import CachedStemmer
from attention_apps.metrics.text_pairs import References, check_pairs

_KINDS = {"1": "rouge1", "2": "rouge2", "l": "rougeL"}


class _Tokenizer:
    """The same words as rouge-score's tokenizer, with cached stems."""

    def __init__(self, stem: bool):
        from rouge_score.tokenize import tokenize

        self._stemmer = CachedStemmer() if stem else None
        self._tokenize = tokenize

    def tokenize(self, text: str) -> list[str]:
        return self._tokenize(text, self._stemmer)


@cache
def _scorer(kind: str, stem: bool) -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer([_KINDS[kind]], tokenizer=_Tokenizer(stem))


def rouge(hypotheses: Sequence[str], references: References, kind: str = "l", stem: bool = True) -> MetricResult:
    """Compute ROUGE-1, 2 or L F1 from 0 to 1 with rouge-score: the mean over items of the best reference.

    `details` holds the mean `precision` and `recall`. Words are runs of a-z and 0-9 in the lowercased text, so other
    scripts score 0.

    Args:
        kind: "1", "2" or "l" (the longest common subsequence).
        stem: whether to compare Porter stems, as is usual in the literature.

    Reference: Lin 2004, sections 2 and 3.
    """
    if kind not in _KINDS:
        raise ValueError(f"`kind` must be one of {list(_KINDS)}. Received: kind={kind!r}")
    hypotheses, references = check_pairs(hypotheses, references)
    scorer = _scorer(kind, stem)
    scores = [scorer.score_multi(texts, hypothesis)[_KINDS[kind]] for hypothesis, texts in zip(hypotheses, references)]
    details = {
        "precision": float(np.mean([score.precision for score in scores])),
        "recall": float(np.mean([score.recall for score in scores])),
    }
    return MetricResult.mean_of(f"rouge_{kind}", [score.fmeasure for score in scores], details)
