"""The alignment of texts with frames by CTC, in TensorFlow, so that it can be part of an exported graph."""

import math

import tensorflow as tf

from attention_apps.constants import PADDING

_BLANK = PADDING


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
    totals, moves = _forward(log_probs, num_frames, _states(token_ids))
    # A path ends in the last token or in the blank after it.
    blank, token = 2 * num_tokens, tf.maximum(2 * num_tokens - 1, 0)
    final = tf.gather(totals, tf.stack([blank, token], axis=1), batch_dims=1)
    path = _backward(moves, tf.where(final[:, 0] >= final[:, 1], blank, token))
    return _spans(path, num_frames, tf.shape(token_ids)[1]), tf.reduce_max(final, axis=1) > -math.inf


def _states(token_ids: tf.Tensor) -> tf.Tensor:
    """The tokens with blanks before, between and after them, `(batch, 2 * target + 1)`."""
    pairs = tf.stack([tf.fill(tf.shape(token_ids), tf.constant(_BLANK, token_ids.dtype)), token_ids], axis=2)
    shape = tf.shape(token_ids) * [1, 2]
    return tf.pad(tf.reshape(pairs, shape), [[0, 0], [0, 1]], constant_values=_BLANK)


def _forward(log_probs: tf.Tensor, num_frames: tf.Tensor, states: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The best total of each state after the last frame, and how many states each frame moved on.

    Rows stay unchanged after their last frame.

    Args:
        log_probs: `(source, batch, vocabulary)`.
        states: `(batch, states)`.

    Returns:
        Totals, `(batch, states)`, and moves of 0, 1 or 2 states, `(source, batch, states)`.
    """
    # Only a token that differs from the token before can be reached without a blank. Blanks never differ.
    can_skip = states != _shift(states, 2, _BLANK)
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
    """Follow the moves back from the last state, `(batch,)`. Returns the state in each frame, `(source, batch)`."""
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
