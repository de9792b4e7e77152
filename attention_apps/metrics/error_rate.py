"""Word and character error rates of transcripts."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attention_apps.metrics.metric_result import MetricResult
from attention_apps.metrics.text_pairs import References, check_single_pairs

_COUNTED = ("substitute", "delete", "insert", "equal")


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
    hypotheses, references = check_single_pairs(hypotheses, references)
    output = process([_one_space(text) for text in references], [_one_space(text) for text in hypotheses])
    statistics = np.asarray([_operations(chunks) for chunks in output.alignments], dtype=np.float64)
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


def _one_space(text: str) -> str:
    return " ".join(text.split())


def _operations(chunks: list[Any]) -> list[int]:
    """Count the substitutions, deletions, insertions and hits of one item."""
    counts = Counter()
    for chunk in chunks:
        in_reference = chunk.ref_end_idx - chunk.ref_start_idx
        counts[chunk.type] += in_reference or chunk.hyp_end_idx - chunk.hyp_start_idx
    return [counts[kind] for kind in _COUNTED]


def _rate(total: np.ndarray) -> float:
    substitutions, deletions, insertions, hits = total.tolist()
    return (substitutions + deletions + insertions) / (substitutions + deletions + hits)
