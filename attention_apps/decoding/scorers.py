"""What a search works with: the state of a step function, ensembles, and scorers such as an n-gram language model."""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, get_args

import keras
import numpy as np
from keras import ops, tree

from attention_apps.checks import require
from attention_apps.constants import END, START

Tensor: TypeAlias = Any  # a tensor of whichever backend Keras runs on
State: TypeAlias = Mapping[str, Any]  # nested dicts of tensors
Step: TypeAlias = Callable[[Tensor, State], tuple[Tensor, State]]

# Entries below this key keep one row per item. They are not repeated for the hypotheses of an item.
PER_ITEM = "per_item"


def as_tensors(state: State) -> tuple[State, int | Tensor]:
    """Convert all entries to tensors. Return them and the length of the batch axis, which each of them must have."""
    state = tree.map_structure(ops.convert_to_tensor, state)
    entries = tree.flatten(state)
    shapes = [tuple(tensor.shape) for tensor in entries]
    if not all(shapes):
        raise ValueError(f"Every entry of `state` must have a batch axis. Received: shapes {shapes}")
    if not entries:
        raise ValueError(f"`state` must hold a tensor, whose first axis is the batch. Received: state={state}")
    return state, ops.shape(entries[0])[0]


def repeat_state(state: State, count: int) -> State:
    """Repeat each row of each entry `count` times, the copies next to each other, except below `PER_ITEM`."""
    entries = [_repeat_entry(path, entry, count) for path, entry in tree.flatten_with_path(state)]
    return tree.pack_sequence_as(state, entries)


def keep_shape(tensor: Tensor, reference: Tensor) -> Tensor:
    """Give `tensor` the static shape of `reference`, as loop variables in a TensorFlow graph must have."""
    tensor = ops.convert_to_tensor(tensor)
    if keras.backend.backend() == "tensorflow":
        tensor.set_shape(reference.shape)
    return tensor


class SplitState:
    """The entries of a state that change from step to step, and those that depend on the source only.

    A step returns an entry of the second kind as the same tensor object it was given. These entries are repeated
    for the hypotheses once, or not at all below `PER_ITEM`. They are never reordered and are not loop variables.

    Args:
        before: the state given to the first step, one row per item.
        after: the state that the first step returned.
        copies: hypotheses per item.
    """

    def __init__(self, before: State, after: State, copies: int) -> None:
        self.structure = after
        pairs = list(zip(tree.flatten_with_path(before), _flatten_like(before, after)))
        changed = [path for (path, old), new in pairs if PER_ITEM in path and new is not old]
        if changed:
            raise ValueError(f"`step` must return entries below {PER_ITEM!r} unchanged. Received: changed {changed}")
        self.fixed = [_repeat_entry(path, old, copies) if new is old else None for (path, old), new in pairs]

    def moving(self, state: State) -> list[Tensor]:
        """Select the entries that change from a state that `step` returned."""
        entries = _flatten_like(self.structure, state)
        return [entry for entry, fixed in zip(entries, self.fixed) if fixed is None]

    def join(self, moving: list[Tensor]) -> State:
        """Build the whole state from the entries that change."""
        remaining = iter(moving)
        entries = [next(remaining) if fixed is None else fixed for fixed in self.fixed]
        return tree.pack_sequence_as(self.structure, entries)


def _repeat_entry(path: tuple, entry: Tensor, count: int) -> Tensor:
    return entry if count == 1 or PER_ITEM in path else ops.repeat(entry, count, axis=0)


def _flatten_like(expected: State, state: State) -> list[Tensor]:
    try:
        tree.assert_same_structure(expected, state)
    except ValueError as error:
        raise ValueError(f"`step` must return a state with the structure of the one it was given. {error}") from None
    return tree.flatten(state)


# A step that returns `((logits, weighted sum of the scorers or None), state)`.
ScoredStep: TypeAlias = Callable[[Tensor, State], tuple[tuple[Tensor, Tensor | None], State]]
Average = Literal["log", "probability"]


@dataclasses.dataclass(frozen=True)
class Scorer:
    """Adds `weight · scores` to the model's log-probability of every next token.

    `call(token, state)` works like a decoder's `step`. It gets the last token of each hypothesis, `(rows,)`, at first
    the start token, and the scorer's own state. It returns the scores of all next tokens, `(rows, vocabulary)`, which
    are used as they are, and its new state. The search repeats and reorders that state together with the model's.
    Since the state belongs to a hypothesis, a scorer updates it for a token in the following call, when it is known
    that the token was chosen:

    - An n-gram language model keeps the last words, appends `token` to them, and looks up its row.
    - A CTC prefix scorer keeps the forward probabilities of a prefix, extends them by `token`, and returns
      `log p(prefix + next, …) - log p(prefix, …)` for every next token.

    Args:
        call: a function or object, `call(token, state) -> (scores, state)`.
        state: nested dicts of tensors with the batch axis first, one row per item. `{}` if there is no state.
        weight: factor of the scores.
        upper_bound: a number that no score exceeds; 0 for log-probabilities. The search stops early only if no live
            hypothesis can still win. Without a bound it continues to the maximum length.

    Example:
        >>> bigram = Scorer(lambda token, state: (ops.take(table, token, axis=0), state), weight=0.3, upper_bound=0.0)
    """

    call: Step
    state: State = dataclasses.field(default_factory=dict)
    weight: float = 1.0
    upper_bound: float = math.inf


def join_scorers(step: Step, state: State, scorers: Sequence[Scorer]) -> tuple[ScoredStep, State]:
    """Join a model and its scorers into one step, which returns `((logits, weighted scores or None), state)`."""
    scorers = [scorer for scorer in scorers if scorer.weight != 0]

    def joined(token: Tensor, state: State) -> tuple[tuple[Tensor, Tensor | None], State]:
        logits, model_state = step(token, state["model"])
        total, states = None, []
        for scorer, scorer_state in zip(scorers, state["scorers"]):
            scores, scorer_state = scorer.call(token, scorer_state)
            weighted = scorer.weight * ops.cast(scores, "float32")
            total = weighted if total is None else total + weighted
            states.append(scorer_state)
        return (logits, total), {"model": model_state, "scorers": states}

    return joined, {"model": state, "scorers": [scorer.state for scorer in scorers]}


def largest_gain(scorers: Sequence[Scorer]) -> float:
    """Return the most that one token can add to a sum. The model adds at most 0: its scores are log-probabilities."""
    scorers = [scorer for scorer in scorers if scorer.weight != 0]
    if any(scorer.weight < 0 for scorer in scorers):
        return math.inf
    return float(sum(scorer.weight * scorer.upper_bound for scorer in scorers))


def ensemble_step(steps: Sequence[Step], weights: Sequence[float] | None = None, average: Average = "log") -> Step:
    """Join several models that share a vocabulary into one step. Its state is made by `ensemble_state`.

    Args:
        steps: the models' steps, each `step(token, state) -> (logits, state)`.
        weights: weights of the models, normalized to sum 1. Equal by default.
        average: `"log"` for the mean of the log-probabilities, where a token must be likely under all models to win.
            `"probability"` for the mean of the probabilities, where one model is enough.
    """
    averages = get_args(Average)
    require(average in averages, "average", f"one of {', '.join(averages)}", average)
    if not steps:
        raise ValueError("`steps` must hold at least one step. Received: steps=[]")
    weights = [1.0] * len(steps) if weights is None else [float(weight) for weight in weights]
    is_valid = len(weights) == len(steps) and min(weights) > 0
    require(is_valid, "weights", f"{len(steps)} positive numbers, one for each step", weights)
    shares = [weight / sum(weights) for weight in weights]

    def step(token: Tensor, state: State) -> tuple[Tensor, State]:
        outputs = [member(token, state[f"model_{index}"]) for index, member in enumerate(steps)]
        log_probs = ops.stack([ops.log_softmax(ops.cast(logits, "float32"), axis=-1) for logits, _ in outputs])
        factors = ops.reshape(ops.convert_to_tensor(shares, "float32"), (-1, 1, 1))
        if average == "log":
            mixed = ops.sum(factors * log_probs, axis=0)
        else:
            mixed = ops.logsumexp(ops.log(factors) + log_probs, axis=0)
        return mixed, ensemble_state([new_state for _, new_state in outputs])

    return step


def ensemble_state(states: Sequence[State]) -> State:
    """Join the states of several models. The entry `"coverage"` is the mean of theirs, if all of them have one."""
    joined = {f"model_{index}": state for index, state in enumerate(states)}
    if all(isinstance(state, Mapping) and "coverage" in state for state in states):
        joined["coverage"] = ops.mean(ops.stack([state["coverage"] for state in states]), axis=0)
    return joined


_NGRAM_HEADER = "n-gram counts"
_MAX_ORDER = 32
_MAX_DIGITS = 15
_MAX_LINE_LENGTH = (_MAX_ORDER + 1) * (_MAX_DIGITS + 1)
_LINE = re.compile(rf"\s*[0-9]{{1,{_MAX_DIGITS}}}(\s+[0-9]{{1,{_MAX_DIGITS}}})+\s*")
_MAX_NGRAMS = 200_000  # load in about three seconds
_MAX_TABLE_SIZE = 50_000_000  # histories times vocabulary: 0.2 GB for each of the two tables

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
        self._shorter = [self._number(history[1:]) for history in in_order]
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
        if text.count("\n") > _MAX_NGRAMS + 1:
            raise ValueError(f"n-gram counts must have at most {_MAX_NGRAMS:,} n-grams. Received: more lines")
        first, *lines = text.rstrip("\n").split("\n")
        if first.rstrip("\r") != _NGRAM_HEADER:
            raise ValueError(f"The first line of n-gram counts must be {_NGRAM_HEADER!r}. Received: {first[:40]!r}")
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
        return "\n".join([_NGRAM_HEADER, *lines]) + "\n"

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
            shorter = probabilities[self._shorter[number]] if history else 1 / self.vocabulary_size
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
                successors[number] = successors[self._shorter[number]]
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
    ngrams = sum(map(len, counts.values()))
    if ngrams > _MAX_NGRAMS:
        raise ValueError(f"`counts` must have at most {_MAX_NGRAMS:,} n-grams. Received: {ngrams:,}. Lower the order")
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
    if not _LINE.fullmatch(line):
        expected = f"must be two or more numbers of at most {_MAX_DIGITS} digits. Received: {line[:40]!r}"
        raise ValueError(f"Line {number} of the n-gram counts {expected}")
    return list(map(int, line.split()))
