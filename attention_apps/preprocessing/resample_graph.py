"""Resample audio in TensorFlow graph code."""

import tensorflow as tf

# The ends of the passband and of the transition band, as fractions of half the lower rate. The same as in soxr.
_PASSED, _STOPPED = 0.913, 1.0
# Padding in samples at the lower rate. The Fourier transform is periodic: the end would leak into the beginning.
_APART = 128


def resampled_length(length: tf.Tensor, rate: tf.Tensor, new_rate: int) -> tf.Tensor:
    """Return the number of samples after resampling, int64."""
    length, rate = tf.cast(length, tf.int64), tf.cast(rate, tf.int64)
    return (2 * length * new_rate + rate) // (2 * rate)


def resample(waveform: tf.Tensor, rate: tf.Tensor, new_rate: int) -> tf.Tensor:
    """Resample `(samples,)` from one integer rate to another, exactly within the shared frequency band.

    The spectrum of the whole waveform is truncated or zero-padded to the frequencies of the new rate. Silence is
    appended, so that the duration is a whole number of samples at both rates.
    """
    rate = tf.cast(rate, tf.int64)
    common = _greatest_common_divisor(rate, tf.constant(new_rate, tf.int64))
    length = tf.size(waveform, tf.int64)
    apart = _APART * rate // tf.minimum(rate, new_rate)
    periods = (length + apart) // (rate // common) + 1
    size, new_size = periods * (rate // common), periods * (new_rate // common)
    spectrum = tf.signal.rfft(waveform, [tf.cast(size, tf.int32)])
    spectrum *= tf.cast(
        _gain(tf.size(spectrum, tf.int64), periods * tf.minimum(rate, new_rate) // common), spectrum.dtype
    )
    samples = tf.signal.irfft(spectrum, [tf.cast(new_size, tf.int32)]) * tf.cast(new_size / size, tf.float32)
    return samples[: resampled_length(length, rate, new_rate)]


def _gain(count, lower_size):
    """Return the gain at each of `count` frequencies. `lower_size` is the transform size at the lower rate."""
    place = tf.cast(tf.range(count), tf.float32) / (tf.cast(lower_size, tf.float32) / 2)
    falling = tf.clip_by_value((_STOPPED - place) / (_STOPPED - _PASSED), 0.0, 1.0)
    return tf.square(tf.sin(falling * (3.141592653589793 / 2)))


def _greatest_common_divisor(left, right):
    return tf.while_loop(lambda _, rest: rest > 0, lambda number, rest: (rest, number % rest), (left, right))[0]
