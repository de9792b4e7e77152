"""Which parts of a long text are read."""

import itertools
from collections.abc import Sequence

import numpy as np

Span = tuple[int, int]


def sentence_spans(starts: Sequence[bool]) -> list[Span]:
    """From where to where each sentence goes, given whether one begins at each token."""
    places = [*np.flatnonzero(starts).tolist(), len(starts)]
    return list(itertools.pairwise(places))


def cut_into_passages(sentences: Sequence[Span], max_length: int, count: int = 1) -> list[Span]:
    """Passages of whole sentences, none longer than `max_length`, and `count` of them if there are enough sentences.

    A sentence that is longer is cut.
    """
    total = sentences[-1][1] if sentences else 0
    limit = min(max_length, -(-total // max(count, 1)))
    passages: list[Span] = []
    for start, end in _pieces(sentences, max_length):
        if passages and end - passages[-1][0] <= limit:
            passages[-1] = (passages[-1][0], end)
        else:
            passages.append((start, end))
    return passages


def choose_passages(features: np.ndarray, count: int) -> list[int]:
    """The first passage, where news says what matters, and those most like the text as a whole, in its order.

    Args:
        features: `(passages, dim)`, a vector for each passage.
    """
    whole = features.mean(axis=0)
    norms = np.linalg.norm(features, axis=1) * np.linalg.norm(whole)
    likeness = features @ whole / np.maximum(norms, 1e-9)
    likeness[0] = np.inf
    return sorted(np.argsort(-likeness, kind="stable")[:count].tolist())


def _pieces(spans, max_length):
    for start, end in spans:
        yield from ((place, min(place + max_length, end)) for place in range(start, end, max_length))
