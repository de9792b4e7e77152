"""Find out what is in the frames of a recording: log-mel features, sound and silence, and pauses to cut at.

Most of it is graph code, the same in training and in an exported model.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeVar, get_args

import numpy as np
import tensorflow as tf

from attention_apps.preprocessing.audio import SAMPLE_RATE

# Keeps a nearly constant feature from being scaled up to unit variance.
_LEAST_VARIANCE = 1e-2
_LEAST_POWER = 1e-10

MelScale = Literal["htk", "slaney"]
Lengths = TypeVar("Lengths", int, np.ndarray, tf.Tensor)


@dataclass(frozen=True)
class LogMelOptions:
    """Options of `log_mel`."""

    sample_rate: int = 16_000
    num_mels: int = 64
    # The length of a frame and the step between frames, in seconds.
    window: float = 0.025
    hop: float = 0.010
    # The frequency range of the filters in Hz, and the scale on which they are equally wide: HTK's formula, or
    # Slaney's, which is linear below 1 kHz.
    lowest_frequency: float = 20.0
    highest_frequency: float = 8_000.0
    mel_scale: MelScale = "htk"
    # Power this many decibels below the loudest of the utterance counts as silence.
    dynamic_range: float = 80.0

    def __post_init__(self) -> None:
        if self.mel_scale not in get_args(MelScale):
            raise ValueError(
                f"`mel_scale` must be one of {', '.join(get_args(MelScale))}. Received: {self.mel_scale!r}"
            )
        for name, largest in (("sample_rate", 384_000), ("num_mels", 1024), ("window", 1.0)):
            if getattr(self, name) > largest:
                raise ValueError(f"`{name}` must be at most {largest}. Received: {name}={getattr(self, name)}")
        if not 0.001 <= self.hop <= self.window:
            raise ValueError(
                f"`hop` must be at least 0.001 and no more than `window`, {self.window}. Received: hop={self.hop}"
            )
        if not 0 <= self.lowest_frequency < self.highest_frequency <= self.sample_rate / 2:
            band = (self.lowest_frequency, self.highest_frequency)
            raise ValueError(f"The frequencies must increase from 0 to half the sample rate. Received: {band}")
        if self.num_mels < 1 or not mel_filters(self).any(axis=0).all():
            raise ValueError(
                f"`num_mels` must be at least 1, and small enough that every filter covers a frequency of the "
                f"{self.window} s window. Received: num_mels={self.num_mels}"
            )

    @property
    def window_size(self) -> int:
        """The number of samples in a frame."""
        return round(self.window * self.sample_rate)

    @property
    def hop_size(self) -> int:
        """The number of samples from one frame to the next."""
        return round(self.hop * self.sample_rate)

    @property
    def fft_size(self) -> int:
        """The smallest power of 2 that holds a frame."""
        return 2 ** (self.window_size - 1).bit_length()


def log_mel(
    waveform: tf.Tensor, lengths: tf.Tensor, options: LogMelOptions | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute log-mel features, normalized to mean 0 and variance 1 per filter over the utterance.

    The first frame starts at the first sample, and all frames lie within the utterance. An utterance shorter than a
    frame has one frame. Features depend only on the item's own samples, not on padding, the batch or loudness.

    Args:
        waveform: `(batch, samples)`.
        lengths: the number of real samples, `(batch,)`.
        options: the default options if None.

    Returns:
        Features `(batch, time, num_mels)`, zero at padding, and the boolean mask `(batch, time)`.
    """
    options = LogMelOptions() if options is None else options
    waveform, size = tf.cast(waveform, tf.float32), tf.shape(waveform)[1]
    # Padding is not multiplied by 0, because it may contain NaN. There is at least one frame.
    waveform = tf.where(tf.sequence_mask(lengths, size), waveform, 0.0)
    power = mel_power(tf.pad(waveform, [[0, 0], [0, tf.maximum(options.window_size - size, 0)]]), options)
    mask = tf.sequence_mask(num_frames(lengths, options), tf.shape(power)[1])  # (B, T)
    power *= tf.cast(mask, tf.float32)[..., tf.newaxis]
    loudest = tf.reduce_max(power, axis=[1, 2], keepdims=True)
    floor = tf.maximum(loudest * 10 ** (-options.dynamic_range / 10), _LEAST_POWER)
    features = tf.math.log(tf.maximum(power, floor))
    real = tf.cast(mask, features.dtype)[..., tf.newaxis]  # (B, T, 1)
    count = tf.maximum(tf.reduce_sum(real, axis=1, keepdims=True), 1.0)
    centered = (features - tf.reduce_sum(features * real, axis=1, keepdims=True) / count) * real
    variance = tf.reduce_sum(tf.square(centered), axis=1, keepdims=True) / count
    return centered * tf.math.rsqrt(tf.maximum(variance, _LEAST_VARIANCE)), mask


def num_frames(lengths: Lengths, options: LogMelOptions) -> Lengths:
    """Return the number of frames for each number of samples: 0 for 0 samples, otherwise at least 1."""
    excess = lengths - options.window_size
    excess = excess * (excess > 0) if isinstance(lengths, (int, np.ndarray)) else tf.maximum(excess, 0)
    frames = 1 + excess // options.hop_size
    return frames * (lengths > 0) if isinstance(lengths, (int, np.ndarray)) else tf.where(lengths > 0, frames, 0)


def mel_power(waveform: tf.Tensor, options: LogMelOptions) -> tf.Tensor:
    """Compute the power of each frame in each mel filter, `(batch, samples)` to `(batch, time, num_mels)`."""
    frames = tf.signal.frame(waveform, options.window_size, options.hop_size)  # (B, T, window)
    spectrum = tf.signal.rfft(frames * tf.signal.hann_window(options.window_size), [options.fft_size])
    power = tf.square(tf.math.real(spectrum)) + tf.square(tf.math.imag(spectrum))
    return tf.tensordot(power, tf.constant(mel_filters(options)), 1)


@lru_cache
def mel_filters(options: LogMelOptions) -> np.ndarray:
    """Return triangular filters `(frequencies, num_mels)` of equal width in mel, half overlapping, with peaks of 1."""
    lowest, highest = _to_mel(np.array([options.lowest_frequency, options.highest_frequency]), options.mel_scale)
    edges = np.linspace(lowest, highest, options.num_mels + 2)
    frequencies = np.fft.rfftfreq(options.fft_size, 1 / options.sample_rate)
    positions = _to_mel(frequencies, options.mel_scale)[:, np.newaxis]
    width = edges[1] - edges[0]
    rising, falling = (positions - edges[:-2]) / width, (edges[2:] - positions) / width
    return np.maximum(np.minimum(rising, falling), 0).astype(np.float32)


def _to_mel(frequency: np.ndarray, scale: MelScale) -> np.ndarray:
    if scale == "htk":
        return 2595 * np.log10(1 + frequency / 700)
    linear = frequency * 3 / 200
    return np.where(frequency < 1000, linear, 15 + 27 * np.log(np.maximum(frequency, 1) / 1000) / np.log(6.4))


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
    padded = tf.pad([tf.where(is_real, levels, 0.0), tf.cast(is_real, levels.dtype)], [[0, 0], [0, 0], [1, 1]])
    sums, neighbors = tf.unstack(padded[..., :-2] + padded[..., 1:-1] + padded[..., 2:])
    levels = sums / tf.maximum(neighbors, 1)
    # The 10th and the 90th percentile, with linear interpolation.
    in_order = tf.pad(tf.sort(tf.where(is_real, levels, float("inf")), axis=1), [[0, 0], [0, 1]])
    places = tf.cast(tf.maximum(counts - 1, 0), levels.dtype)[:, tf.newaxis] * [0.1, 0.9]  # (B, 2)
    below, above = (
        tf.gather(in_order, tf.cast(one, tf.int32), batch_dims=1) for one in (tf.floor(places), tf.math.ceil(places))
    )
    quiet, loud = tf.split(below + (above - below) * (places - tf.floor(places)), 2, axis=1)
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
