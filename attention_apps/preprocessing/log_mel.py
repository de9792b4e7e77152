"""Log-mel features in graph code, the same in training and in an exported model."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeVar

import numpy as np
import tensorflow as tf

# Keeps a nearly constant feature from being scaled up to unit variance.
_LEAST_VARIANCE = 1e-2
_SILENCE = 1e-10

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
    mel_scale: Literal["htk", "slaney"] = "htk"
    # Power this many decibels below the loudest of the utterance counts as silence.
    dynamic_range: float = 80.0

    def __post_init__(self) -> None:
        if self.mel_scale not in _TO_MEL:
            raise ValueError(f"`mel_scale` must be one of {', '.join(_TO_MEL)}. Received: {self.mel_scale!r}")
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
    floor = tf.maximum(loudest * 10 ** (-options.dynamic_range / 10), _SILENCE)
    return normalize_features(tf.math.log(tf.maximum(power, floor)), mask), mask


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


def normalize_features(features: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Normalize each feature to mean 0 and variance 1 over the real frames. Padding becomes zero."""
    real = tf.cast(mask, features.dtype)[..., tf.newaxis]  # (B, T, 1)
    count = tf.maximum(tf.reduce_sum(real, axis=1, keepdims=True), 1.0)
    centered = (features - tf.reduce_sum(features * real, axis=1, keepdims=True) / count) * real
    variance = tf.reduce_sum(tf.square(centered), axis=1, keepdims=True) / count
    return centered * tf.math.rsqrt(tf.maximum(variance, _LEAST_VARIANCE))


@lru_cache
def mel_filters(options: LogMelOptions) -> np.ndarray:
    """Return triangular filters `(frequencies, num_mels)` of equal width in mel, half overlapping, with peaks of 1."""
    to_mel = _TO_MEL[options.mel_scale]
    lowest, highest = to_mel(np.array([options.lowest_frequency, options.highest_frequency]))
    edges = np.linspace(lowest, highest, options.num_mels + 2)
    frequencies = np.fft.rfftfreq(options.fft_size, 1 / options.sample_rate)
    positions = to_mel(frequencies)[:, np.newaxis]
    width = edges[1] - edges[0]
    rising, falling = (positions - edges[:-2]) / width, (edges[2:] - positions) / width
    return np.maximum(np.minimum(rising, falling), 0).astype(np.float32)


def _to_htk(frequency: np.ndarray) -> np.ndarray:
    return 2595 * np.log10(1 + frequency / 700)


def _to_slaney(frequency: np.ndarray) -> np.ndarray:
    linear = frequency * 3 / 200
    return np.where(frequency < 1000, linear, 15 + 27 * np.log(np.maximum(frequency, 1) / 1000) / np.log(6.4))


_TO_MEL = {"htk": _to_htk, "slaney": _to_slaney}
