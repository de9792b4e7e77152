"""Further opinions on the next token: a language model, CTC, or anything else that scores a whole vocabulary."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from keras import ops

from attention_apps.decoding.state import State, Step, Tensor


@dataclasses.dataclass(frozen=True)
class Scorer:
    """Adds `weight · scores` to the model's log-probability of every next token.

    `call(token, state)` has the contract of a decoder's `step`: it gets the token written last by each hypothesis
    (at first the start token), `(rows,)`, and its own state, and returns the scores of all next tokens,
    `(rows, vocabulary)`, used as they are, together with its new state. The search repeats and reorders that state
    as it does the model's. So a state belongs to a hypothesis, and what a token does to it is worked out in the
    following call, when that token is known to have been chosen:

    - an n-gram language model keeps the last words, appends `token` to them, and looks up its row;
    - a CTC prefix scorer keeps the forward probabilities of a prefix, extends them by `token`, and returns
      `log p(prefix + next, …) - log p(prefix, …)` for every next token.

    Args:
        call: a function or object, `call(token, state) -> (scores, state)`.
        state: nested dicts of tensors with the batch axis first, one row for each item; `{}` if there is none.
        weight: factor of the scores.
        upper_bound: a number that no score exceeds, 0 for log-probabilities. The search stops early only if no live
            hypothesis can still win, so without a bound it goes on to the maximum length.

    Example:
        >>> bigram = Scorer(lambda token, state: (ops.take(table, token, axis=0), state), weight=0.3, upper_bound=0.0)
    """

    call: Any
    state: State = dataclasses.field(default_factory=dict)
    weight: float = 1.0
    upper_bound: float = math.inf


def join_scorers(step: Step, state: State, scorers: Sequence[Scorer]) -> tuple[Step, State]:
    """One step for the model and its scorers, which returns `((logits, weighted scores or None), state)`."""
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
    """The most that one token can add to a hypothesis; the model itself, a log-probability, adds nothing."""
    scorers = [scorer for scorer in scorers if scorer.weight != 0]
    if any(scorer.weight < 0 for scorer in scorers):
        return math.inf
    return float(sum(scorer.weight * scorer.upper_bound for scorer in scorers))
