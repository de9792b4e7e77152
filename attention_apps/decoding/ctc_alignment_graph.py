"""Which frames CTC spends on each letter, as `align_ctc` says it, in TensorFlow graph code for a batch of texts."""

import tensorflow as tf

from attention_apps.decoding.ctc_alignment import IMPOSSIBLE


def align_ctc_in_graph(
    log_probs: tf.Tensor, num_frames: tf.Tensor, token_ids: tf.Tensor, num_letters: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The likeliest way to spread each text over its frames, by the Viterbi algorithm.

    Args:
        log_probs: of each token in each frame, `(batch, source, vocabulary)`; id 0 is the blank.
        num_frames: those that are real, `(batch,)`.
        token_ids: the letters, `(batch, target)`, without start and end.
        num_letters: those that are real, `(batch,)`.

    Returns:
        The first frame of each letter and the one after its last, `(batch, target, 2)`, int32, and whether there are
        enough frames, `(batch,)`; where there are not, and beyond the letters, the numbers mean nothing.
    """
    states = _states(token_ids)
    total, steps = _forward(tf.transpose(tf.cast(log_probs, tf.float64), [1, 0, 2]), num_frames, states)
    last = 2 * num_letters
    final = tf.gather(total, tf.stack([last, tf.maximum(last - 1, 0)], axis=1), batch_dims=1)
    state = tf.where(final[:, 0] >= final[:, 1], last, tf.maximum(last - 1, 0))
    spans = _spans(_backward(steps, state), num_frames, tf.shape(token_ids)[1])
    return spans, tf.reduce_max(final, axis=1) > IMPOSSIBLE / 2


def _states(token_ids):
    """Blanks before, between and after the letters, `(batch, 2 * target + 1)`."""
    pairs = tf.stack([tf.zeros_like(token_ids), token_ids], axis=2)
    shape = tf.shape(token_ids) * [1, 2]
    return tf.pad(tf.reshape(pairs, shape), [[0, 0], [0, 1]])


def _forward(log_probs, num_frames, states):
    """The best score of each state at the end, and how many states each frame's steps went on, `(source, B, states)`.

    A row whose frames are over stays where it is.
    """
    # A letter that differs from the letter before; blanks never do.
    skippable = tf.pad(states[:, 2:] != states[:, :-2], [[0, 0], [2, 0]])
    length = tf.shape(log_probs)[0]

    def scores(frame):
        return tf.gather(log_probs[frame], states, axis=1, batch_dims=1)

    def advance(frame, total, steps):
        one = _shift(total, 1)
        two = tf.where(skippable, _shift(total, 2), IMPOSSIBLE)
        best = tf.maximum(tf.maximum(total, one), two)
        step = tf.where(total == best, 0, tf.where(one == best, 1, 2))
        is_real = (frame < num_frames)[:, tf.newaxis]
        total = tf.where(is_real, tf.maximum(best + scores(frame), IMPOSSIBLE), total)
        return frame + 1, total, steps.write(frame, tf.cast(tf.where(is_real, step, 0), tf.int8))

    can_begin = tf.range(tf.shape(states)[1]) < 2
    first = tf.where(can_begin, scores(0), IMPOSSIBLE)
    steps = tf.TensorArray(tf.int8, length).write(0, tf.zeros_like(states, tf.int8))
    loop = tf.while_loop(lambda frame, *_: frame < length, advance, (tf.constant(1), first, steps))
    return loop[1], loop[2].stack()


def _shift(total, places):
    return tf.pad(total[:, :-places], [[0, 0], [places, 0]], constant_values=IMPOSSIBLE)


def _backward(steps, state):
    """The state in each frame, `(source, batch)`."""
    length = tf.shape(steps)[0]

    def retreat(frame, state, path):
        step = tf.gather(steps[frame], state, batch_dims=1)
        return frame - 1, state - tf.cast(step, tf.int32), path.write(frame, state)

    loop = (length - 1, state, tf.TensorArray(tf.int32, length))
    return tf.while_loop(lambda frame, *_: frame >= 0, retreat, loop)[2].stack()


def _spans(path, num_frames, num_letters):
    length = tf.shape(path)[0]
    frames = tf.range(length)[:, tf.newaxis, tf.newaxis]
    is_there = path[..., tf.newaxis] == 2 * tf.range(num_letters) + 1  # (S, B, T)
    is_there &= frames < num_frames[:, tf.newaxis]
    first = tf.reduce_min(tf.where(is_there, frames, length), axis=0)
    end = tf.reduce_max(tf.where(is_there, frames + 1, 0), axis=0)
    return tf.stack([first, end], axis=2)
