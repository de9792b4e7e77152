"""Word and character error rates of transcripts."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from attention_apps.metrics.metric import MetricResult, References, check_pairs


def wer(hypotheses: Sequence[str], references: References) -> MetricResult:
    """Compute the word error rate with jiwer: all errors divided by all reference words. It can exceed 1.

    Case and punctuation count. Consecutive white space counts as one space. `details` holds `substitutions`,
    `deletions`, `insertions` and `reference_length`.
    """
    import jiwer

    return _error_rate("wer", jiwer.process_words, hypotheses, references)


def cer(hypotheses: Sequence[str], references: References) -> MetricResult:
    """Compute the character error rate with jiwer. Spaces between words are characters. Otherwise like `wer`."""
    import jiwer

    return _error_rate("cer", jiwer.process_characters, hypotheses, references)


def _error_rate(name: str, process: Callable, hypotheses: Sequence[str], references: References) -> MetricResult:
    hypotheses, references = check_pairs(hypotheses, references)
    for index, texts in enumerate(references):
        if len(texts) > 1:
            raise ValueError(f"`references[{index}]` must be one text for this metric. Received: {len(texts)} texts")
    output = process(
        [" ".join(text.split()) for (text,) in references], [" ".join(text.split()) for text in hypotheses]
    )
    rows = []
    for chunks in output.alignments:
        counts = Counter()
        for chunk in chunks:
            in_reference = chunk.ref_end_idx - chunk.ref_start_idx
            counts[chunk.type] += in_reference or chunk.hyp_end_idx - chunk.hyp_start_idx
        rows.append([counts[kind] for kind in ("substitute", "delete", "insert", "equal")])
    statistics = np.asarray(rows, dtype=np.float64)
    substitutions, deletions, insertions, hits = (int(count) for count in statistics.sum(axis=0))
    return MetricResult(
        name=name,
        score=_rate(statistics.sum(axis=0)),
        items=np.asarray([_rate(row) for row in statistics]),
        statistics=statistics,
        combine=_rate,
        details={
            "substitutions": substitutions,
            "deletions": deletions,
            "insertions": insertions,
            "reference_length": substitutions + deletions + hits,
        },
    )


def _rate(total: np.ndarray) -> float:
    substitutions, deletions, insertions, hits = total.tolist()
    return (substitutions + deletions + insertions) / (substitutions + deletions + hits)
