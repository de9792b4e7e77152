"""Where the sentences of a text are, and which parts of a long one are read."""

import re
from collections.abc import Sequence

import numpy as np

from attention_apps.preprocessing.text import JOINER

Span = tuple[int, int]

_ENDS = re.compile(rf"{JOINER}?(?:[.?!…\u3002\uff1f\uff01]|\.\.+){JOINER}?")
_ABBREVIATION = re.compile(
    r"(?:[A-Za-z]|Mr|Mrs|Ms|Dr|Prof|St|Gen|Gov|Sen|Rep|Lt|Col|Sgt|Capt|Jr|Sr|vs|No|Inc|Ltd|Co|Corp)\.?"
)
_WORD = re.compile(r"[^\W_]")


def count_words(tokens: Sequence[str]) -> int:
    """How many tokens have a letter or a digit."""
    return sum(bool(_WORD.search(token)) for token in tokens)


def find_sentences(tokens: Sequence[str]) -> list[Span]:
    """From where to where each sentence goes; quotes and brackets that close after its end belong to it."""
    spans, start, ended = [], 0, False
    for place, token in enumerate(tokens):
        if ended and not token.startswith(JOINER):
            if _may_begin(token):
                spans.append((start, place))
                start = place
            ended = False
        if _ENDS.fullmatch(token):
            ended = place == start or not _ABBREVIATION.fullmatch(tokens[place - 1])
    return [*spans, (start, len(tokens))] if start < len(tokens) else spans


def cut_into_passages(tokens: Sequence[str], max_length: int, count: int = 1) -> list[Span]:
    """Passages of whole sentences, none longer than `max_length`, and `count` of them if there are enough sentences.

    A sentence that is longer is cut.
    """
    limit = max_length if count == 1 else min(max_length, -(-len(tokens) // count))
    passages: list[Span] = []
    for start, end in _pieces(find_sentences(tokens), max_length):
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


def _may_begin(token):
    """Whether a sentence may begin with a token: not with a small letter."""
    letters = [character for character in token if character.isalpha()]
    return not letters or not letters[0].islower()


def _pieces(spans, max_length):
    for start, end in spans:
        yield from ((place, min(place + max_length, end)) for place in range(start, end, max_length))
