"""An n-gram language model with Witten-Bell smoothing, as a scorer of next tokens."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Self, TypeAlias

import numpy as np
from keras import ops

from attention_apps.checks import require
from attention_apps.constants import END, START
from attention_apps.decoding.scorers import Scorer, State, Tensor

_HEADER = "n-gram counts"
_MAX_ORDER = 32
_MAX_DIGITS = 15
_MAX_LINE_LENGTH = (_MAX_ORDER + 1) * (_MAX_DIGITS + 1)
_MAX_TABLE_SIZE = 100_000_000  # histories times vocabulary: 0.4 GB for each of the two tables

History: TypeAlias = tuple[int, ...]


class NgramModel:
    """p(token | previous tokens), as an automaton with one row of log-probabilities per history in the counts.

    The distribution after a history is interpolated with that of the next shorter history, down to a uniform
    distribution: p(w | h) = (c(h w) + t(h) p(w | h')) / (c(h) + t(h)). Here t(h) is the number of different tokens seen
    after h, and h' is h without its first token.

    Args:
        counts: how often each token was seen after each history, `{(1, 5): {7: 2}}`. Texts start with token 1 and end
            with token 2.
        vocabulary_size: number of tokens.

    Example:

    >>> model = NgramModel.fit([[4, 5], [4, 5], [4, 6]], vocabulary_size=7, order=3)
    >>> bool(model.log_prob([4, 5]) > model.log_prob([4, 6]) > model.log_prob([6, 6]))
    True

    Reference:
        Witten and Bell 1991, "The Zero-Frequency Problem", method C; Hori et al. 2017, section 3.3, for its use with
        CTC and attention.
    """

    def __init__(self, counts: Mapping[History, Mapping[int, int]], vocabulary_size: int) -> None:
        _check_counts(counts, vocabulary_size)
        self.vocabulary_size = vocabulary_size
        self._counts: dict[History, Mapping[int, int]] = {(): {}, **counts}
        in_order = sorted(self._counts, key=lambda history: (len(history), history))
        self._numbers = {history: number for number, history in enumerate(in_order)}
        self.log_probs: np.ndarray = self._find_log_probs()  # (histories, V)
        self.successors: np.ndarray = self._find_successors()  # (histories, V)

    @classmethod
    def fit(cls, texts: Iterable[Sequence[int]], vocabulary_size: int, order: int = 6) -> Self:
        """Count the n-grams of texts, up to n = `order`. Texts are token ids without start and end token."""
        require(order >= 1, "order", "at least 1", order)
        require(order <= _MAX_ORDER, "order", f"at most {_MAX_ORDER}", order)
        counts: dict[History, Counter[int]] = {}
        for text in texts:
            tokens = (START, *text, END)
            for place in range(1, len(tokens)):
                for length in range(min(order, place + 1)):
                    counts.setdefault(tokens[place - length : place], Counter())[tokens[place]] += 1
        return cls({history: dict(seen) for history, seen in counts.items()}, vocabulary_size)

    @classmethod
    def from_text(cls, text: str, vocabulary_size: int) -> Self:
        """Read the output of `to_text`. An error names the line that is wrong."""
        first, *lines = text.splitlines() or [""]
        if first != _HEADER:
            raise ValueError(f"The first line of n-gram counts must be {_HEADER!r}. Received: {first[:40]!r}")
        counts: dict[History, dict[int, int]] = {}
        for number, line in enumerate(lines, 2):
            count, *history, token = _parse_line(line, number)
            counts.setdefault(tuple(history), {})[token] = count
        return cls(counts, vocabulary_size)

    def to_text(self) -> str:
        """Write one line per n-gram: its count and its tokens."""
        lines = [
            " ".join(map(str, (count, *history, token)))
            for history in self._numbers
            for token, count in sorted(self._counts[history].items())
        ]
        return "\n".join([_HEADER, *lines]) + "\n"

    def log_prob(self, text: Sequence[int]) -> float:
        """The log-probability of a text, including its end."""
        total, number = 0.0, self._number((START,))
        for token in (*text, END):
            total += float(self.log_probs[number, token])
            number = int(self.successors[number, token])
        return total

    def scorer(self, batch: int | Tensor, weight: float) -> Scorer:
        """Make a scorer for a search over `batch` items."""
        log_probs, successors = ops.convert_to_tensor(self.log_probs), ops.convert_to_tensor(self.successors)

        def score(token: Tensor, state: State) -> tuple[Tensor, State]:
            successor = ops.take(ops.reshape(successors, (-1,)), state["history"] * self.vocabulary_size + token)
            history = ops.where(token == START, state["history"], successor)
            return ops.take(log_probs, history, axis=0), {"history": history}

        state = {"history": ops.full((batch,), self._number((START,)), dtype="int32")}
        return Scorer(score, state, weight, upper_bound=0.0)

    def _find_log_probs(self) -> np.ndarray:
        """Interpolate the counts. Shorter histories come first, so their distributions are known when needed."""
        probabilities = np.empty((len(self._numbers), self.vocabulary_size))
        for history, number in self._numbers.items():
            seen = self._counts[history]
            shorter = probabilities[self._number(history[1:])] if history else 1 / self.vocabulary_size
            kinds, total = max(len(seen), 1), sum(seen.values())
            probabilities[number] = kinds * shorter / (total + kinds)
            if seen:
                probabilities[number, list(seen)] += np.array([*seen.values()]) / (total + kinds)
        return np.log(probabilities, out=probabilities).astype(np.float32)

    def _find_successors(self) -> np.ndarray:
        """For each history and token, the number of the longest known history that the longer text ends with."""
        successors = np.zeros((len(self._numbers), self.vocabulary_size), np.int32)
        for history, number in self._numbers.items():
            if history:
                successors[number] = successors[self._number(history[1:])]
            for token in self._counts[history]:
                extended = (*history, token)
                if extended in self._numbers:
                    successors[number, token] = self._numbers[extended]
        return successors

    def _number(self, history: History) -> int:
        """The number of the longest known history that this history ends with."""
        while history not in self._numbers:
            history = history[1:]
        return self._numbers[history]


def _check_counts(counts: Mapping[History, Mapping[int, int]], vocabulary_size: int) -> None:
    """Check sizes first. They bound the time and memory that a model from a file can take."""
    require(vocabulary_size >= 1, "vocabulary_size", "at least 1", vocabulary_size)
    limit = _MAX_TABLE_SIZE // vocabulary_size
    if len(counts) >= limit:
        received = f"Received: {len(counts):,} histories and vocabulary_size={vocabulary_size:,}"
        raise ValueError(f"`counts` must have fewer than {limit:,} histories for this vocabulary. {received}")
    longest = max(map(len, counts), default=0)
    if longest >= _MAX_ORDER:
        raise ValueError(f"`counts` must have histories of fewer than {_MAX_ORDER} tokens. Received: {longest:,}")
    tokens = [token for history, seen in counts.items() for token in (*history, *seen)]
    if tokens and not 0 <= min(tokens) <= max(tokens) < vocabulary_size:
        raise ValueError(f"`counts` must have tokens from 0 to {vocabulary_size - 1}.")


def _parse_line(line: str, number: int) -> list[int]:
    """Read a line of counts. The length is checked first, so that a long line costs no time."""
    if len(line) > _MAX_LINE_LENGTH:
        expected = f"must have at most {_MAX_LINE_LENGTH} characters. Received: {len(line):,} characters"
        raise ValueError(f"Line {number} of the n-gram counts {expected}")
    fields = line.split()
    are_numbers = all(field.isascii() and field.isdigit() and len(field) <= _MAX_DIGITS for field in fields)
    if not are_numbers or len(fields) < 2:
        expected = f"must be two or more numbers of at most {_MAX_DIGITS} digits. Received: {line[:40]!r}"
        raise ValueError(f"Line {number} of the n-gram counts {expected}")
    return [int(field) for field in fields]
