"""Find silence and speech in recordings, and cut long recordings at pauses."""

from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from attention_apps.preprocessing.audio import SAMPLE_RATE

# The length of a frame, and of the quiet span around a cut, in seconds.
FRAME_SECONDS = 0.01
_CUT_SECONDS = 0.25
# The earliest cut, as a fraction of the longest piece.
_EARLIEST = 0.3
# A recording whose amplitude stays below this, at a full scale of 1, is silent.
SILENCE = 1e-4
# The speech threshold lies between the 10th and the 90th percentile of the frame levels, if these are at least
# MIN_RANGE decibels apart: at the fraction THRESHOLD of the way up, and at most MAX_BELOW decibels below the 90th.
MIN_RANGE = 12.0
THRESHOLD = 0.35
MAX_BELOW = 25.0

# The number of samples in a frame.
FRAME = round(FRAME_SECONDS * SAMPLE_RATE)


def is_silent(waveform: np.ndarray) -> bool:
    """Return whether a recording is digital silence or constant."""
    return not len(waveform) or float(np.ptp(waveform)) < 2 * SILENCE


def cut_at_pauses(blocks: Iterable[np.ndarray], max_seconds: float) -> Iterator[tuple[float, np.ndarray]]:
    """Cut a recording, given in blocks, into pieces of at most `max_seconds` at its quietest points.

    Yields:
        The start of each piece in seconds, and its samples. At most one piece and one block are in memory at a time.
    """
    longest, begin = round(max_seconds * SAMPLE_RATE), 0
    waiting = np.zeros(0, np.float32)
    for block in blocks:
        waiting = np.concatenate([waiting, block])
        while len(waiting) > longest:
            cut = _quietest_place(waiting[:longest])
            yield begin / SAMPLE_RATE, waiting[:cut]
            begin, waiting = begin + cut, waiting[cut:]
    if len(waiting):
        yield begin / SAMPLE_RATE, waiting


def _quietest_place(waveform):
    """Return the sample in the middle of the quietest span, the last one if several are equal."""
    count = len(waveform) // FRAME
    frames = np.asarray(waveform[: count * FRAME], np.float64).reshape(count, FRAME)
    levels = 10 * np.log10(np.square(frames).mean(axis=1) + 1e-10)  # in decibels
    kernel = np.ones(min(round(_CUT_SECONDS / FRAME_SECONDS), count))
    levels = np.convolve(levels, kernel, "same") / np.convolve(np.ones(count), kernel, "same")
    first = int(_EARLIEST * len(levels))
    later = levels[first:]
    return (first + len(later) - 1 - int(np.argmin(later[::-1]))) * FRAME + FRAME // 2


def is_silent_in_graph(waveform: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Apply `is_silent` to a batch in graph code.

    Args:
        waveform: `(batch, samples)`.
        lengths: the number of real samples, `(batch,)`.
    """
    is_real = tf.sequence_mask(lengths, tf.shape(waveform)[1])
    highest = tf.reduce_max(tf.where(is_real, waveform, float("-inf")), axis=1)
    lowest = tf.reduce_min(tf.where(is_real, waveform, float("inf")), axis=1)
    return highest - lowest < 2 * SILENCE


def loud_frames(waveform: tf.Tensor, lengths: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return which frames of `FRAME_SECONDS` are louder than the background. Recordings need at least three frames.

    Args:
        waveform: `(batch, samples)`.
        lengths: the number of real samples, `(batch,)`.

    Returns:
        Boolean `(batch, frames)`, false at padding, and the number of frames, `(batch,)`.
    """
    counts = lengths // FRAME
    batch, frames = tf.shape(waveform)[0], tf.shape(waveform)[1] // FRAME
    is_real = tf.sequence_mask(counts, frames)
    power = tf.reduce_mean(tf.square(tf.reshape(waveform[:, : frames * FRAME], [batch, frames, FRAME])), axis=2)
    levels = 10 * tf.math.log(tf.cast(power, tf.float64) + 1e-10) / tf.math.log(tf.constant(10, tf.float64))
    # The moving average over three frames, fewer at the ends.
    neighbors = tf.maximum(_sum_of_three(tf.cast(is_real, levels.dtype)), 1)
    levels = _sum_of_three(tf.where(is_real, levels, 0.0)) / neighbors
    in_order = tf.sort(tf.where(is_real, levels, float("inf")), axis=1)
    quiet, loud = (_quantile(in_order, counts, part)[:, tf.newaxis] for part in (0.1, 0.9))
    threshold = tf.maximum(quiet + THRESHOLD * (loud - quiet), loud - MAX_BELOW)
    is_loud = (loud - quiet < MIN_RANGE) | (levels > threshold)
    return is_loud & is_real, counts


def envelope(waveform: tf.Tensor) -> tf.Tensor:
    """Return the lowest and the highest sample of each frame of `FRAME_SECONDS`, `(batch, frames, 2)`.

    Args:
        waveform: `(batch, samples)`.
    """
    batch, frames = tf.shape(waveform)[0], tf.shape(waveform)[1] // FRAME
    framed = tf.reshape(waveform[:, : frames * FRAME], [batch, frames, FRAME])
    return tf.stack([tf.reduce_min(framed, axis=2), tf.reduce_max(framed, axis=2)], axis=2)


def _sum_of_three(values):
    padded = tf.pad(values, [[0, 0], [1, 1]])
    return padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]


def _quantile(in_order, counts, part):
    """Return the quantile `part` of the frame levels, `(batch,)`, with linear interpolation."""
    in_order = tf.pad(in_order, [[0, 0], [0, 1]])
    place = tf.cast(tf.maximum(counts - 1, 0), in_order.dtype) * part
    below, above = (
        tf.gather(in_order, tf.cast(one, tf.int32), batch_dims=1) for one in (tf.floor(place), tf.math.ceil(place))
    )
    return below + (above - below) * (place - tf.floor(place))
