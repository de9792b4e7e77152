"""What a search works with: the state of a step function, scorers that take part in the search, and ensembles."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import keras
from keras import ops, tree

from attention_apps.checks import require

Tensor: TypeAlias = Any  # a tensor of whichever backend Keras runs on
State: TypeAlias = Mapping[str, Any]  # nested dicts of tensors
Step: TypeAlias = Callable[[Tensor, State], tuple[Tensor, State]]

# Entries below this key keep one row per item. They are not repeated for the hypotheses of an item.
PER_ITEM = "per_item"


def as_tensors(state: State) -> State:
    """Convert all entries to tensors and check that each has a batch axis."""
    state = tree.map_structure(ops.convert_to_tensor, state)
    shapes = [tuple(tensor.shape) for tensor in tree.flatten(state)]
    if not all(shapes):
        raise ValueError(f"Every entry of `state` must have a batch axis. Received: shapes {shapes}")
    return state


def batch_size(state: State) -> int | Tensor:
    """Return the length of the batch axis, taken from the first entry."""
    entries = tree.flatten(state)
    if not entries:
        raise ValueError(f"`state` must hold a tensor, whose first axis is the batch. Received: state={state}")
    return ops.shape(entries[0])[0]


def repeat_rows(tensor: Tensor, count: int) -> Tensor:
    """Repeat each row `count` times, the copies next to each other."""
    return tensor if count == 1 else ops.repeat(tensor, count, axis=0)


def repeat_state(state: State, count: int) -> State:
    """Repeat each row of each entry `count` times, except below `PER_ITEM`."""
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
    return entry if PER_ITEM in path else repeat_rows(entry, count)


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
    shares = _normalize(weights, len(steps))

    def step(token: Tensor, state: State) -> tuple[Tensor, State]:
        outputs = [member(token, state[_name(index)]) for index, member in enumerate(steps)]
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
    joined = {_name(index): state for index, state in enumerate(states)}
    if all(isinstance(state, Mapping) and "coverage" in state for state in states):
        joined["coverage"] = ops.mean(ops.stack([state["coverage"] for state in states]), axis=0)
    return joined


def _name(index: int) -> str:
    return f"model_{index}"


def _normalize(weights: Sequence[float] | None, number: int) -> list[float]:
    if number < 1:
        raise ValueError("`steps` must hold at least one step. Received: steps=[]")
    weights = [1.0] * number if weights is None else [float(weight) for weight in weights]
    is_valid = len(weights) == number and min(weights) > 0
    require(is_valid, "weights", f"{number} positive numbers, one for each step", weights)
    return [weight / sum(weights) for weight in weights]
