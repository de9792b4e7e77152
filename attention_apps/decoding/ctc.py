"""Connectionist temporal classification: the loss, a scorer of prefixes for the search, and the alignment with frames.

The blank is id 0, the padding of our tokens. Start and end tokens are not letters.
"""

import math
from dataclasses import dataclass

import tensorflow as tf
from keras import ops

from attention_apps.constants import END, PADDING, START, UNKNOWN, VERY_NEGATIVE
from attention_apps.decoding.scorers import Scorer, State, Tensor

BLANK = PADDING


def ctc_losses(logits: tf.Tensor, mask: tf.Tensor, tokens: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the negative log-probability of each text, summed over all its alignments with the frames.

    Args:
        logits: `(batch, source, vocabulary)`.
        mask: Boolean `(batch, source)`; `True` means real.
        tokens: `(batch, target)`: letters, with or without start and end tokens, padded with 0.

    Returns:
        The losses, `(batch,)`, and whether there are enough frames, boolean `(batch,)`. A text with too few frames has
        no finite loss; its loss is 0.

    Reference:
        Graves et al. 2006, "Connectionist Temporal Classification", section 4.1.
    """
    logits = tf.cast(logits, tf.float32)
    frames = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
    letters = tf.where(tokens > END, tf.cast(tokens, tf.int32), BLANK)
    is_empty = tf.reduce_all(letters == BLANK, axis=1)
    # One frame for each letter, and a blank between two equal letters.
    repeats = (letters[:, 1:] != BLANK) & (letters[:, 1:] == letters[:, :-1])
    frames_needed = tf.math.count_nonzero(letters, axis=1, dtype=tf.int32)
    fits = frames >= frames_needed + tf.math.count_nonzero(repeats, axis=1, dtype=tf.int32)
    # The kernel rejects a text without letters. Such rows, and those that do not fit, get a placeholder.
    placeholder = tf.one_hot(0, tf.shape(letters)[1], on_value=UNKNOWN, off_value=BLANK, dtype=tf.int32)
    spelled = tf.where((is_empty | ~fits)[:, tf.newaxis], placeholder, letters)
    # The kernel for sparse labels is several times faster than `tf.nn.ctc_loss` with dense labels.
    indices = tf.where(spelled != BLANK)
    blank_last = tf.concat([logits[..., BLANK + 1 :], logits[..., : BLANK + 1]], axis=-1)
    losses, _ = tf.raw_ops.CTCLoss(
        inputs=tf.transpose(blank_last, (1, 0, 2)),
        labels_indices=indices,
        labels_values=tf.gather_nd(spelled, indices) - 1,
        sequence_length=tf.maximum(frames, 1),
        ctc_merge_repeated=True,
    )
    blank_losses = tf.reduce_logsumexp(logits, axis=-1) - logits[..., BLANK]
    silence_losses = tf.reduce_sum(tf.where(mask, blank_losses, 0.0), axis=1)
    return tf.where(fits, tf.where(is_empty, silence_losses, losses), 0.0), fits


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
    only_blank = ops.where(ops.arange(ops.shape(log_probs)[-1]) == BLANK, 0.0, VERY_NEGATIVE)
    log_probs = ops.where(ops.expand_dims(ops.cast(mask, "bool"), -1), log_probs, only_blank)
    # The state of the empty prefix: all frames are blank.
    blank = _with_first(0.0, ops.cumsum(log_probs[..., BLANK], axis=1))
    nothing = ops.zeros_like(blank[:, 0])
    state = {
        "log_probs": log_probs,
        "letter": ops.full_like(blank, VERY_NEGATIVE),
        "blank": blank,
        "prefix": nothing,
        "last": ops.cast(nothing, "int32"),
    }
    return Scorer(_PrefixScorer(start_token, end_token), state, weight, upper_bound=0.0)


@dataclass(frozen=True)
class _PrefixScorer:
    """Keeps the forward probabilities of a prefix as the state of a hypothesis.

    - `log_probs`, `(rows, source, vocabulary)`: the log-probabilities of the frames.
    - `letter`, `(rows, source + 1)`: the log-probability that the first s frames spell the prefix and the last of them
      is the prefix' last token.
    - `blank`, `(rows, source + 1)`: the same with a blank as the last frame.
    - `prefix`, `(rows,)`: log p(prefix, …).
    - `last`, `(rows,)`: the last token of the prefix, 0 for the empty prefix.
    """

    start_token: int
    end_token: int

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
        blank_log_probs = state["log_probs"][..., BLANK]
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
        never = ops.logical_or(tokens == BLANK, tokens == self.start_token)
        prefixes = ops.where(never, VERY_NEGATIVE, ops.maximum(prefixes, VERY_NEGATIVE))
        return ops.minimum(prefixes - ops.expand_dims(state["prefix"], 1), 0.0)


def _entering(state: State, is_repeat: Tensor | bool) -> Tensor:
    """Return log p of the prefix in the frames before each frame, where a new token starts, `(rows, source)`.

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


def align_ctc(
    log_probs: tf.Tensor, num_frames: tf.Tensor, token_ids: tf.Tensor, num_tokens: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Find the most likely alignment of each text with its frames, by the Viterbi algorithm.

    CTC emits one token or a blank per frame. A token may last several frames. Between two equal tokens there must be a
    blank, so a text needs as many frames as it has tokens and repeats.

    Args:
        log_probs: log-probabilities of all tokens in each frame, `(batch, source, vocabulary)`. Id 0 is the blank.
        num_frames: number of frames without padding, int32 `(batch,)`.
        token_ids: the texts without start and end token, int32 `(batch, target)`.
        num_tokens: number of tokens without padding, int32 `(batch,)`.

    Returns:
        The first frame of each token and the frame after its last, int32 `(batch, target, 2)`, and whether the text
        fits into its frames, bool `(batch,)`. Spans of padding and of texts that do not fit are meaningless.

    Example:

    >>> log_probs = tf.math.log([[[0.1, 0.8, 0.1], [0.6, 0.3, 0.1], [0.1, 0.2, 0.7]]])
    >>> spans, is_aligned = align_ctc(log_probs, tf.constant([3]), tf.constant([[1, 2]]), tf.constant([2]))
    >>> spans.numpy().tolist(), is_aligned.numpy().tolist()
    ([[[0, 1], [2, 3]]], [True])

    Reference:
        Graves et al. 2006, "Connectionist Temporal Classification", section 4.1, with the maximum in place of the sum.
    """
    log_probs = tf.transpose(tf.cast(log_probs, tf.float64), [1, 0, 2])  # (S, B, V)
    # The states of a path: the tokens with blanks before, between and after them, `(batch, 2 * target + 1)`.
    pairs = tf.stack([tf.fill(tf.shape(token_ids), tf.constant(BLANK, token_ids.dtype)), token_ids], axis=2)
    states = tf.pad(tf.reshape(pairs, tf.shape(token_ids) * [1, 2]), [[0, 0], [0, 1]], constant_values=BLANK)
    totals, moves = _forward(log_probs, num_frames, states)
    # A path ends in the last token or in the blank after it.
    blank, token = 2 * num_tokens, tf.maximum(2 * num_tokens - 1, 0)
    final = tf.gather(totals, tf.stack([blank, token], axis=1), batch_dims=1)
    path = _backward(moves, tf.where(final[:, 0] >= final[:, 1], blank, token))
    return _spans(path, num_frames, tf.shape(token_ids)[1]), tf.reduce_max(final, axis=1) > -math.inf


def _forward(log_probs: tf.Tensor, num_frames: tf.Tensor, states: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute the best total of each state after the last frame, and how many states each frame moved on.

    Rows stay unchanged after their last frame.

    Args:
        log_probs: `(source, batch, vocabulary)`.
        states: `(batch, states)`.

    Returns:
        Totals, `(batch, states)`, and moves of 0, 1 or 2 states, `(source, batch, states)`.
    """
    # Only a token that differs from the token before can be reached without a blank. Blanks never differ.
    can_skip = states != _shift(states, 2, BLANK)
    length = tf.shape(log_probs)[0]

    def scores(frame: tf.Tensor) -> tf.Tensor:
        return tf.gather(log_probs[frame], states, axis=1, batch_dims=1)

    def advance(frame: tf.Tensor, totals: tf.Tensor, moves: tf.TensorArray) -> tuple:
        one = _shift(totals, 1, -math.inf)
        two = tf.where(can_skip, _shift(totals, 2, -math.inf), -math.inf)
        best = tf.maximum(tf.maximum(totals, one), two)
        move = tf.where(totals == best, 0, tf.where(one == best, 1, 2))
        is_real = (frame < num_frames)[:, tf.newaxis]
        new_totals = tf.where(is_real, best + scores(frame), totals)
        new_totals.set_shape(totals.shape)
        return frame + 1, new_totals, moves.write(frame, tf.cast(tf.where(is_real, move, 0), tf.int8))

    can_start = tf.range(tf.shape(states)[1]) < 2
    first = tf.where(can_start, scores(tf.constant(0)), -math.inf)
    moves = tf.TensorArray(tf.int8, length).write(0, tf.zeros_like(states, tf.int8))
    loop = tf.while_loop(lambda frame, *_: frame < length, advance, (tf.constant(1), first, moves))
    return loop[1], loop[2].stack()


def _shift(values: tf.Tensor, places: int, fill: float) -> tf.Tensor:
    return tf.pad(values, [[0, 0], [places, 0]], constant_values=fill)[:, :-places]


def _backward(moves: tf.Tensor, state: tf.Tensor) -> tf.Tensor:
    """Follow the moves back from the last state, `(batch,)`. Return the state in each frame, `(source, batch)`."""
    length = tf.shape(moves)[0]

    def retreat(frame: tf.Tensor, state: tf.Tensor, path: tf.TensorArray) -> tuple:
        previous = state - tf.cast(tf.gather(moves[frame], state, batch_dims=1), tf.int32)
        previous.set_shape(state.shape)
        return frame - 1, previous, path.write(frame, state)

    loop = (length - 1, state, tf.TensorArray(tf.int32, length))
    return tf.while_loop(lambda frame, *_: frame >= 0, retreat, loop)[2].stack()


def _spans(path: tf.Tensor, num_frames: tf.Tensor, num_tokens: tf.Tensor) -> tf.Tensor:
    length = tf.shape(path)[0]
    frames = tf.range(length)[:, tf.newaxis, tf.newaxis]
    is_there = path[..., tf.newaxis] == 2 * tf.range(num_tokens) + 1  # (S, B, T)
    is_there &= frames < num_frames[:, tf.newaxis]
    first = tf.reduce_min(tf.where(is_there, frames, length), axis=0)
    end = tf.reduce_max(tf.where(is_there, frames + 1, 0), axis=0)
    return tf.stack([first, end], axis=2)
