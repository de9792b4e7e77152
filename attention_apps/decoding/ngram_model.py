"""A language model that counts: how often each token follows the few before it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
from keras import ops

from attention_apps.decoding.scorers import Scorer
from attention_apps.decoding.state import State, Tensor

_START, _END = 1, 2
_HEADER = "n-gram counts"
_MAX_CONTEXTS = 2_000_000

Context = tuple[int, ...]


class NgramModel:
    """p(token | the tokens before it), as an automaton: a row of log-probabilities for each history that was seen.

    Counts of long histories are mixed with those of shorter ones after Witten and Bell, down to a uniform
    distribution: p(w | h) = (c(h w) + t(h) p(w | h')) / (c(h) + t(h)), with t(h) different tokens seen after h, and h'
    the history without its first token.

    Args:
        counts: how often each token was seen after each history, `{(1, 5): {7: 2}}`; a text begins with token 1 and
            ends with token 2.
        vocabulary_size: number of tokens.

    Example:

    >>> model = NgramModel.fit([[4, 5], [4, 5], [4, 6]], vocabulary_size=7, order=3)
    >>> bool(model.log_prob([4, 5]) > model.log_prob([4, 6]) > model.log_prob([6, 6]))
    True

    Reference:
        Witten and Bell 1991, "The Zero-Frequency Problem", method C; Hori et al. 2017, section 3.3, for its use with
        CTC and attention.
    """

    def __init__(self, counts: dict[Context, dict[int, int]], vocabulary_size: int):
        if len(counts) > _MAX_CONTEXTS:
            raise ValueError(f"`counts` must have at most {_MAX_CONTEXTS:,} histories. Received: {len(counts):,}")
        tokens = [token for history, seen in counts.items() for token in (*history, *seen)]
        if tokens and not 0 <= min(tokens) <= max(tokens) < vocabulary_size:
            raise ValueError(f"`counts` must be of tokens from 0 to {vocabulary_size - 1}.")
        self.vocabulary_size = vocabulary_size
        self._counts = {(): {}, **counts}
        self._numbers = {history: number for number, history in enumerate(sorted(self._counts, key=_by_length))}
        self.log_probs = np.log(self._mixed_probabilities()).astype(np.float32)  # (histories, V)
        self.successors = self._find_successors()  # (histories, V)

    @classmethod
    def fit(cls, texts: Iterable[Sequence[int]], vocabulary_size: int, order: int = 6) -> Self:
        """Counts the n-grams of texts, given as token ids without start and end; `order` is the longest n."""
        if order < 1:
            raise ValueError(f"`order` must be at least 1. Received: order={order}")
        counts: dict[Context, Counter[int]] = {}
        for text in texts:
            tokens = (_START, *text, _END)
            for place in range(1, len(tokens)):
                for length in range(min(order, place + 1)):
                    counts.setdefault(tokens[place - length : place], Counter())[tokens[place]] += 1
        return cls({history: dict(seen) for history, seen in counts.items()}, vocabulary_size)

    @classmethod
    def from_text(cls, text: str, vocabulary_size: int) -> Self:
        """Reads what `to_text` gave; a bad line is an error that names it."""
        first, *lines = text.splitlines() or [""]
        if first != _HEADER:
            raise ValueError(f"The first line of n-gram counts must be {_HEADER!r}. Received: {first[:40]!r}")
        counts: dict[Context, dict[int, int]] = {}
        for number, line in enumerate(lines, 2):
            if not all(field.isascii() and field.isdigit() for field in line.split()) or len(line.split()) < 2:
                raise ValueError(f"Line {number} of the n-gram counts must be numbers. Received: {line[:40]!r}")
            count, *history, token = map(int, line.split())
            counts.setdefault(tuple(history), {})[token] = count
        return cls(counts, vocabulary_size)

    def to_text(self) -> str:
        """A line for each n-gram: how often it was seen, and its tokens."""
        lines = [
            " ".join(map(str, (count, *history, token)))
            for history in self._numbers
            for token, count in sorted(self._counts[history].items())
        ]
        return "\n".join([_HEADER, *lines]) + "\n"

    def log_prob(self, text: Sequence[int]) -> float:
        """The log-probability of a text, its end included."""
        total, number = 0.0, self._number((_START,))
        for token in (*text, _END):
            total += float(self.log_probs[number, token])
            number = int(self.successors[number, token])
        return total

    def scorer(self, batch: int | Tensor, weight: float) -> Scorer:
        """The model as a scorer of a search over `batch` items."""
        log_probs, successors = ops.convert_to_tensor(self.log_probs), ops.convert_to_tensor(self.successors)
        before_start = self._number((_START,))

        def score(token: Tensor, state: State) -> tuple[Tensor, State]:
            follower = ops.take(ops.reshape(successors, (-1,)), state["history"] * self.vocabulary_size + token)
            history = ops.where(token == _START, state["history"], follower)
            return ops.take(log_probs, history, axis=0), {"history": history}

        return Scorer(score, {"history": ops.full((batch,), before_start, dtype="int32")}, weight, upper_bound=0.0)

    def _mixed_probabilities(self):
        """`(histories, V)`; shorter histories come first, so that those mixed in are there already."""
        probabilities = np.empty((len(self._numbers), self.vocabulary_size))
        for history, number in self._numbers.items():
            seen = self._counts[history]
            mixed = 1 / self.vocabulary_size if not history else probabilities[self._number(history[1:])]
            kinds, total = max(len(seen), 1), sum(seen.values())
            probabilities[number] = kinds * mixed / (total + kinds)
            probabilities[number, list(seen)] += np.array([*seen.values()]) / (total + kinds) if seen else 0
        return probabilities

    def _find_successors(self):
        """The history after each history and token: the longest known one that ends alike."""
        successors = np.zeros((len(self._numbers), self.vocabulary_size), np.int32)
        for history, number in self._numbers.items():
            if history:
                successors[number] = successors[self._number(history[1:])]
            for token in self._counts[history]:
                extended = (*history, token)
                if extended in self._numbers:
                    successors[number, token] = self._numbers[extended]
        return successors

    def _number(self, history):
        """Of the longest known history that ends like this one."""
        while history not in self._numbers:
            history = history[1:]
        return self._numbers[history]


def _by_length(history):
    return len(history), history
