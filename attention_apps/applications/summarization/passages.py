"""Cuts long texts into passages and chooses among them."""

import itertools
from collections.abc import Sequence

import numpy as np

Span = tuple[int, int]


def sentence_spans(starts: Sequence[bool]) -> list[Span]:
    """Returns the start and end of each sentence, given which tokens start one."""
    places = [*np.flatnonzero(starts).tolist(), len(starts)]
    return list(itertools.pairwise(places))


def cut_into_passages(sentences: Sequence[Span], max_length: int, count: int = 1) -> list[Span]:
    """Cuts a text into passages of whole sentences of at most `max_length` tokens, `count` of them if possible.

    A sentence longer than `max_length` is split.
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
    """Chooses the first passage, which matters most in news, and those most similar to the whole text, in their order.

    Args:
        features: `(passages, dim)`, a vector per passage.
    """
    whole = features.mean(axis=0)
    norms = np.linalg.norm(features, axis=1) * np.linalg.norm(whole)
    likeness = features @ whole / np.maximum(norms, 1e-9)
    likeness[0] = np.inf
    return sorted(np.argsort(-likeness, kind="stable")[:count].tolist())


def _pieces(spans, max_length):
    for start, end in spans:
        yield from ((place, min(place + max_length, end)) for place in range(start, end, max_length))
