"""CTC as a scorer of next tokens, for joint CTC/attention decoding."""

from keras import ops

from attention_apps.constants import END, PADDING, START, VERY_NEGATIVE
from attention_apps.decoding.scorers import Scorer
from attention_apps.decoding.state import State, Tensor

_BLANK = PADDING


def ctc_prefix_scorer(
    logits: Tensor, mask: Tensor, weight: float, start_token: int = START, end_token: int = END
) -> Scorer:
    """Score each next token by log p(prefix + token, …) - log p(prefix, …) under CTC.

    p(prefix, …) is the probability of all texts that start with the prefix. For the end token it is the probability
    that the text is exactly the prefix. So the scores of all tokens are log-probabilities, and the scores of a
    finished text add up to the log-probability of that text under CTC.

    The recursion over time runs only for the token that was chosen. The scores of all next tokens follow from the
    forward probabilities of their common prefix without a recursion.

    Args:
        logits: logits of the CTC head, `(batch, source, vocabulary)`. Id 0 is the blank.
        mask: boolean `(batch, source)`, true for real frames.
        weight: factor of the scores. To rank by λ · CTC + (1 - λ) · attention, use λ / (1 - λ).
        start_token: id of the start token, which gets the lowest score.
        end_token: id of the end token.

    Reference:
        Hori et al. 2017, "Joint CTC/Attention Decoding for End-to-End Speech Recognition", algorithm 2; Watanabe et al.
        2017, "Hybrid CTC/Attention Architecture for End-to-End Speech Recognition", section IV-B.
    """
    log_probs = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
    # A padding frame is a blank with probability 1, which changes no probability of a text.
    only_blank = ops.where(ops.arange(ops.shape(log_probs)[-1]) == _BLANK, 0.0, VERY_NEGATIVE)
    log_probs = ops.where(ops.expand_dims(ops.cast(mask, "bool"), -1), log_probs, only_blank)
    prefix_scorer = _PrefixScorer(start_token, end_token)
    return Scorer(prefix_scorer, prefix_scorer.init_state(log_probs), weight, upper_bound=0.0)


class _PrefixScorer:
    """Keeps the forward probabilities of a prefix as the state of a hypothesis.

    - `log_probs`, `(rows, source, vocabulary)`: the log-probabilities of the frames.
    - `letter`, `(rows, source + 1)`: the log-probability that the first s frames spell the prefix and the last of them
      is the prefix' last token.
    - `blank`, `(rows, source + 1)`: the same with a blank as the last frame.
    - `prefix`, `(rows,)`: log p(prefix, …).
    - `last`, `(rows,)`: the last token of the prefix, 0 for the empty prefix.
    """

    def __init__(self, start_token: int, end_token: int) -> None:
        self.start_token = start_token
        self.end_token = end_token

    def init_state(self, log_probs: Tensor) -> State:
        """The state of the empty prefix: all frames are blank."""
        blank = _with_first(0.0, ops.cumsum(log_probs[..., _BLANK], axis=1))
        nothing = ops.zeros_like(blank[:, 0])
        return {
            "log_probs": log_probs,
            "letter": ops.full_like(blank, VERY_NEGATIVE),
            "blank": blank,
            "prefix": nothing,
            "last": ops.cast(nothing, "int32"),
        }

    def __call__(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        """Extend each prefix by the last token, unless that is the start token, and score all next tokens."""
        is_start = token == self.start_token
        extended = self._extend(token, state)
        for name, entry in extended.items():
            keep = ops.reshape(is_start, (-1, *(1,) * (len(entry.shape) - 1)))
            extended[name] = ops.where(keep, state[name], entry)
        state = {"log_probs": state["log_probs"], **extended}
        return self._scores(state), state

    def _extend(self, token: Tensor, state: State) -> dict[str, Tensor]:
        token = ops.cast(token, "int32")
        log_probs = _of_token(state["log_probs"], token)  # (R, S)
        entering = _entering(state, ops.expand_dims(token == state["last"], 1)) + log_probs
        letter = _with_first(VERY_NEGATIVE, _log_recurrence(log_probs, entering))
        blank_log_probs = state["log_probs"][..., _BLANK]
        blank = _with_first(VERY_NEGATIVE, _log_recurrence(blank_log_probs, letter[:, :-1] + blank_log_probs))
        prefix = ops.maximum(ops.logsumexp(entering, axis=1), VERY_NEGATIVE)
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
        prefixes = ops.where(never, VERY_NEGATIVE, ops.maximum(prefixes, VERY_NEGATIVE))
        return ops.minimum(prefixes - ops.expand_dims(state["prefix"], 1), 0.0)


def _entering(state: State, is_repeat: Tensor | bool) -> Tensor:
    """The log-probability of the prefix in the frames before each frame, where a new token starts, `(rows, source)`.

    If the new token repeats the last one, there must be a blank between them.
    """
    either = ops.logaddexp(state["letter"], state["blank"])
    return ops.where(is_repeat, state["blank"], either)[:, :-1]


def _of_token(log_probs: Tensor, token: Tensor) -> Tensor:
    return ops.take_along_axis(log_probs, ops.reshape(token, (-1, 1, 1)), axis=2)[..., 0]


def _with_first(value: float, sequence: Tensor) -> Tensor:
    return ops.concatenate([ops.full_like(sequence[:, :1], value), sequence], axis=1)


def _log_recurrence(decay: Tensor, inputs: Tensor) -> Tensor:
    """Compute x[t] = log(exp(decay[t] + x[t - 1]) + exp(inputs[t])) with a logarithmic number of iterations.

    A parallel prefix sum: each iteration doubles the span over which `decay` and `outputs` are combined.
    """
    length = ops.shape(inputs)[1]
    positions = ops.arange(length, dtype="int32")

    def join(span: Tensor, decay: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inside, before = positions >= span, ops.maximum(positions - span, 0)
        earlier = ops.where(inside, decay + ops.take(outputs, before, axis=1), VERY_NEGATIVE)
        decay = ops.where(inside, decay + ops.take(decay, before, axis=1), VERY_NEGATIVE)
        return span * 2, decay, ops.logaddexp(outputs, earlier)

    first = (ops.ones((), dtype="int32"), decay, inputs)
    outputs = ops.while_loop(lambda span, *_: span < length, join, first)[2]
    return ops.maximum(outputs, VERY_NEGATIVE)
