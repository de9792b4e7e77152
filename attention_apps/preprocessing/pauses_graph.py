"""Where recordings are silent, as `pauses` says it, in TensorFlow graph code for a batch of them."""

import tensorflow as tf

from attention_apps.preprocessing.pauses import FRAME, LEAST_RANGE, MOST_BELOW, SILENCE, THRESHOLD


def is_silent_in_graph(waveform: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Whether nothing moves in each of some recordings: digital silence, or a constant.

    Args:
        waveform: `(batch, samples)`.
        lengths: the samples that are real, `(batch,)`.
    """
    is_real = tf.sequence_mask(lengths, tf.shape(waveform)[1])
    highest = tf.reduce_max(tf.where(is_real, waveform, float("-inf")), axis=1)
    lowest = tf.reduce_min(tf.where(is_real, waveform, float("inf")), axis=1)
    return highest - lowest < 2 * SILENCE


def loud_frames_in_graph(waveform: tf.Tensor, lengths: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Whether there is more than background in each frame of `FRAME_SECONDS`, of recordings of three frames or more.

    Args:
        waveform: `(batch, samples)`.
        lengths: the samples that are real, `(batch,)`.

    Returns:
        Boolean `(batch, frames)`, false where there is no frame, and the number of frames, `(batch,)`.
    """
    counts = lengths // FRAME
    batch, frames = tf.shape(waveform)[0], tf.shape(waveform)[1] // FRAME
    is_real = tf.sequence_mask(counts, frames)
    power = tf.reduce_mean(tf.square(tf.reshape(waveform[:, : frames * FRAME], [batch, frames, FRAME])), axis=2)
    levels = 10 * tf.math.log(tf.cast(power, tf.float64) + 1e-10) / tf.math.log(tf.constant(10, tf.float64))
    levels = _smooth(tf.where(is_real, levels, 0.0), is_real)
    in_order = tf.sort(tf.where(is_real, levels, float("inf")), axis=1)
    quiet, loud = (_quantile(in_order, counts, part)[:, tf.newaxis] for part in (0.1, 0.9))
    threshold = tf.maximum(quiet + THRESHOLD * (loud - quiet), loud - MOST_BELOW)
    is_loud = (loud - quiet < LEAST_RANGE) | (levels > threshold)
    return is_loud & is_real, counts


def _smooth(levels, is_real):
    """The mean over three frames, fewer at the ends."""
    return _sum_of_three(levels) / tf.maximum(_sum_of_three(tf.cast(is_real, levels.dtype)), 1)


def _sum_of_three(values):
    padded = tf.pad(values, [[0, 0], [1, 1]])
    return padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]


def _quantile(in_order, counts, part):
    """The level that `part` of the frames are below, `(batch,)`, found between two of them where it has to be."""
    in_order = tf.pad(in_order, [[0, 0], [0, 1]])
    place = tf.cast(tf.maximum(counts - 1, 0), in_order.dtype) * part
    below, above = (
        tf.gather(in_order, tf.cast(one, tf.int32), batch_dims=1) for one in (tf.floor(place), tf.math.ceil(place))
    )
    return below + (above - below) * (place - tf.floor(place))
