"""CTC's opinion on the next letter, for a search that listens to CTC and attention at once."""

from keras import ops

from attention_apps.decoding.scorers import Scorer
from attention_apps.decoding.state import State, Tensor

_BLANK = 0
# The logarithm of nothing; finite, so that differences of two are no NaN.
_IMPOSSIBLE = -1e9


def ctc_prefix_scorer(logits: Tensor, mask: Tensor, weight: float, start_token: int = 1, end_token: int = 2) -> Scorer:
    """Scores each next token by log p(prefix + token, …) - log p(prefix, …) under CTC.

    p(prefix, …) is the probability of all texts that begin with the prefix, and for the end token that of the prefix
    as the whole text. So the scores of all tokens are log-probabilities, and those of a finished text add up to the
    log-probability that CTC gives it.

    The recursion over time is made for the token that was chosen only; the scores of all next tokens follow from what
    is known of their common prefix, without one.

    Args:
        logits: the CTC head's, `(batch, source, vocabulary)`; id 0 is the blank.
        mask: boolean `(batch, source)`.
        weight: factor of the scores. λ · CTC + (1 - λ) · attention ranks like attention + weight · CTC with
            λ / (1 - λ).

    Reference:
        Hori et al. 2017, "Joint CTC/Attention Decoding for End-to-End Speech Recognition", algorithm 2; Watanabe et al.
        2017, "Hybrid CTC/Attention Architecture for End-to-End Speech Recognition", section IV-B.
    """
    log_probs = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
    # Padding is surely blank, which leaves all probabilities as they are.
    only_blank = ops.where(ops.arange(ops.shape(log_probs)[-1]) == _BLANK, 0.0, _IMPOSSIBLE)
    log_probs = ops.where(ops.expand_dims(ops.cast(mask, "bool"), -1), log_probs, only_blank)
    prefix_scorer = _PrefixScorer(start_token, end_token)
    return Scorer(prefix_scorer, prefix_scorer.init_state(log_probs), weight, upper_bound=0.0)


class _PrefixScorer:
    """The state of a hypothesis.

    `log_probs` `(rows, source, vocabulary)` of the frames; `letter` and `blank` `(rows, source + 1)`: the
    log-probability that the first s frames spell the prefix, their last frame being its last letter or a blank;
    `prefix` `(rows,)`: log p(prefix, …); `last` `(rows,)`: the last letter of the prefix, 0 before the first.
    """

    def __init__(self, start_token: int, end_token: int) -> None:
        self.start_token = start_token
        self.end_token = end_token

    def init_state(self, log_probs: Tensor) -> State:
        """The state of the empty prefix: all frames so far were blank."""
        blank = _with_first(0.0, ops.cumsum(log_probs[..., _BLANK], axis=1))
        nothing = ops.zeros_like(blank[:, 0])
        return {
            "log_probs": log_probs,
            "letter": ops.full_like(blank, _IMPOSSIBLE),
            "blank": blank,
            "prefix": nothing,
            "last": ops.cast(nothing, "int32"),
        }

    def __call__(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        """Extends each prefix by the token just written, unless that is the start token, and scores what may follow."""
        is_start = token == self.start_token
        extended = self._extend(token, state)
        for name, entry in extended.items():
            keep = ops.reshape(is_start, (-1, *(1,) * (len(entry.shape) - 1)))
            extended[name] = ops.where(keep, state[name], entry)
        state = {"log_probs": state["log_probs"], **extended}
        return self._scores(state), state

    def _extend(self, token: Tensor, state: State) -> State:
        token = ops.cast(token, "int32")
        log_probs = _of_token(state["log_probs"], token)  # (R, S)
        entering = _entering(state, ops.expand_dims(token == state["last"], 1)) + log_probs
        letter = _with_first(_IMPOSSIBLE, _log_recurrence(log_probs, entering))
        blank_log_probs = state["log_probs"][..., _BLANK]
        blank = _with_first(_IMPOSSIBLE, _log_recurrence(blank_log_probs, letter[:, :-1] + blank_log_probs))
        prefix = ops.maximum(ops.logsumexp(entering, axis=1), _IMPOSSIBLE)
        return {"letter": letter, "blank": blank, "prefix": prefix, "last": token}

    def _scores(self, state: State) -> Tensor:
        log_probs, last = state["log_probs"], ops.expand_dims(state["last"], 1)
        entering = ops.expand_dims(_entering(state, False), 2)  # (R, S, 1)
        prefixes = ops.logsumexp(entering + log_probs, axis=1)  # (R, V)
        again = _entering(state, True) + _of_token(log_probs, state["last"])
        tokens = ops.arange(ops.shape(log_probs)[-1])
        prefixes = ops.where(tokens == last, ops.logsumexp(again, axis=1, keepdims=True), prefixes)
        whole = ops.logaddexp(state["letter"][:, -1:], state["blank"][:, -1:])
        prefixes = ops.where(tokens == self.end_token, whole, prefixes)
        never = ops.logical_or(tokens == _BLANK, tokens == self.start_token)
        prefixes = ops.where(never, _IMPOSSIBLE, ops.maximum(prefixes, _IMPOSSIBLE))
        return ops.minimum(prefixes - ops.expand_dims(state["prefix"], 1), 0.0)


def _entering(state: State, is_repeat: Tensor | bool) -> Tensor:
    """What the frames before each frame spell if a further letter begins there, `(rows, source)`.

    The letter that came last can begin anew after a blank only.
    """
    either = ops.logaddexp(state["letter"], state["blank"])
    return ops.where(is_repeat, state["blank"], either)[:, :-1]


def _of_token(log_probs: Tensor, token: Tensor) -> Tensor:
    return ops.take_along_axis(log_probs, ops.reshape(token, (-1, 1, 1)), axis=2)[..., 0]


def _with_first(value: float, sequence: Tensor) -> Tensor:
    return ops.concatenate([ops.full_like(sequence[:, :1], value), sequence], axis=1)


def _log_recurrence(decay: Tensor, inputs: Tensor) -> Tensor:
    """x[t] = log(exp(decay[t] + x[t - 1]) + exp(inputs[t])), in a logarithmic number of turns.

    Each turn joins stretches twice as long: `decay` over a stretch, and `outputs` of what entered in it.
    """
    length = ops.shape(inputs)[1]
    positions = ops.arange(length, dtype="int32")

    def join(span, decay, outputs):
        inside, before = positions >= span, ops.maximum(positions - span, 0)
        earlier = ops.where(inside, decay + ops.take(outputs, before, axis=1), _IMPOSSIBLE)
        decay = ops.where(inside, decay + ops.take(decay, before, axis=1), _IMPOSSIBLE)
        return span * 2, decay, ops.logaddexp(outputs, earlier)

    first = (ops.ones((), dtype="int32"), decay, inputs)
    outputs = ops.while_loop(lambda span, *_: span < length, join, first)[2]
    return ops.maximum(outputs, _IMPOSSIBLE)
