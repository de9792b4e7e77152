"""chrF, the F-score of character n-grams."""

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from attention_apps.metrics.metric_result import MetricResult
from attention_apps.metrics.text_pairs import References, check_pairs


def chrf(hypotheses: Sequence[str], references: References) -> MetricResult:
    """Corpus chrF2 from 0 to 100 by sacreBLEU with its defaults: six orders of characters, no words.

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
        score=_score(statistics.sum(axis=0)),
        items=np.asarray([_score(row) for row in statistics]),
        statistics=statistics,
        combine=_score,
        details={"signature": str(metric.get_signature())},
    )


def _score(total: np.ndarray) -> float:
    from sacrebleu.metrics import CHRF

    return float(CHRF()._compute_f_score(total.tolist()))
