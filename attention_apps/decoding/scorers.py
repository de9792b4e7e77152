"""Combining models: scorers that take part in a search, and ensembles."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from keras import ops

from attention_apps.checks import require
from attention_apps.decoding.state import State, Step, Tensor

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
    """The most that one token can add to a sum. The model adds at most 0, since its scores are log-probabilities."""
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
