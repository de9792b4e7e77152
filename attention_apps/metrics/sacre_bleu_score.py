"""BLEU of plain text, comparable between papers."""

from collections.abc import Sequence
from importlib.metadata import version

import numpy as np

from attention_apps.metrics.metric_result import MetricResult
from attention_apps.metrics.text_pairs import References, check_pairs

_ORDERS = 4
_SIGNATURE = "case:mixed|eff:no|tok:13a|smooth:exp"


def sacre_bleu(hypotheses: Sequence[str], references: References) -> MetricResult:
    """Compute corpus BLEU from 0 to 100 with sacreBLEU's defaults: cased, 13a tokens, exponential smoothing.

    The score of a single item skips the orders for which it is too short, as sacreBLEU recommends. `details` has the
    signature.

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
        details={"signature": f"nrefs:{min(map(len, references))}|{_SIGNATURE}|version:{version('sacrebleu')}"},
    )


def _score(total: np.ndarray) -> float:
    from sacrebleu.metrics import BLEU

    length, reference_length, *counts = total.tolist()
    score = BLEU.compute_bleu(
        counts[:_ORDERS], counts[_ORDERS:], int(length), int(reference_length), smooth_method="exp"
    )
    return float(score.score)
