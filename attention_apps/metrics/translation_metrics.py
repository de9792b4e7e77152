"""Metrics of translations, computed by sacreBLEU: BLEU of plain text, and chrF."""

from collections.abc import Sequence
from importlib.metadata import version
from itertools import zip_longest

import numpy as np

from attention_apps.metrics.metric import MetricResult, References, check_pairs

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
        score=_bleu(statistics.sum(axis=0)),
        items=np.asarray([score.score for score in sentences]),
        statistics=statistics,
        combine=_bleu,
        details={"signature": f"nrefs:{min(map(len, references))}|{_SIGNATURE}|version:{version('sacrebleu')}"},
    )


def _bleu(total: np.ndarray) -> float:
    from sacrebleu.metrics import BLEU

    length, reference_length, *counts = total.tolist()
    score = BLEU.compute_bleu(
        counts[:_ORDERS], counts[_ORDERS:], int(length), int(reference_length), smooth_method="exp"
    )
    return float(score.score)


def chrf(hypotheses: Sequence[str], references: References) -> MetricResult:
    """Compute corpus chrF2 from 0 to 100 with sacreBLEU's defaults: six orders of characters, no words.

    Of several references, the closest counts. `details` has the signature.

    Reference: Popović 2015.
    """
    from sacrebleu.metrics import CHRF

    hypotheses, references = check_pairs(hypotheses, references)
    metric = CHRF()
    # Each row has the n-grams of the text, of its reference and of both, for each order.
    rows = metric._extract_corpus_statistics(hypotheses, list(zip_longest(*references)))
    statistics = np.asarray(rows, dtype=np.float64)
    return MetricResult(
        name="chrf",
        score=_chrf(statistics.sum(axis=0)),
        items=np.asarray([_chrf(row) for row in statistics]),
        statistics=statistics,
        combine=_chrf,
        details={"signature": str(metric.get_signature())},
    )


def _chrf(total: np.ndarray) -> float:
    from sacrebleu.metrics import CHRF

    return float(CHRF()._compute_f_score(total.tolist()))
