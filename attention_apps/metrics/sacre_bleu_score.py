"""BLEU on plain text, comparable between papers."""

from collections.abc import Sequence

import numpy as np

from attention_apps.metrics.metric_result import MetricResult
from attention_apps.metrics.text_pairs import References, check_pairs

_ORDERS = 4


def sacre_bleu(hypotheses: Sequence[str], references: References) -> MetricResult:
    """Corpus BLEU from 0 to 100 by sacreBLEU with its defaults: case, 13a tokens, exponential smoothing.

    An item's own figure leaves out the orders it is too short for, as sacreBLEU advises for single sentences.

    Reference: Post 2018.
    """
    from sacrebleu.metrics import BLEU

    hypotheses, references = check_pairs(hypotheses, references)
    metric = BLEU(effective_order=True)
    sentences = [metric.sentence_score(*pair) for pair in zip(hypotheses, references)]
    statistics = np.asarray(
        [[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in sentences],
        dtype=np.float64,
    )
    return MetricResult(
        name="sacre_bleu",
        score=_score(statistics.sum(axis=0)),
        items=np.asarray([score.score for score in sentences]),
        statistics=statistics,
        combine=_score,
    )


def _score(total: np.ndarray) -> float:
    from sacrebleu.metrics import BLEU

    length, reference_length, *counts = total.tolist()
    score = BLEU.compute_bleu(
        counts[:_ORDERS], counts[_ORDERS:], int(length), int(reference_length), smooth_method="exp"
    )
    return float(score.score)
