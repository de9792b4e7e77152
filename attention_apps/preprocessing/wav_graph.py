"""Decode WAV files and resample them in TensorFlow graph code, for an exported recognizer."""

import enum
import math
from functools import partial

import tensorflow as tf

from attention_apps.preprocessing.audio import HIGHEST_RATE, LARGEST_SAMPLE, LOWEST_RATE, MAX_CHANNELS, SAMPLE_RATE
from attention_apps.preprocessing.image_graph import map_rows_ignoring_errors

_MAX_CHUNKS = 256
# Bytes per sample of the known formats: PCM of 8, 16, 24 and 32 bits, floats of 32 and 64 bits.
_WIDTHS = (1, 2, 3, 4, 4, 8)
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
# The bytes that follow the format's two bytes in an extensible header.
_GUID_TAIL = b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"


class AudioStatus(enum.IntEnum):
    """The result of decoding a recording in `decode_wavs`."""

    DECODED = 0
    BROKEN = 1  # empty, damaged, or with samples that are not numbers
    UNSUPPORTED = 2  # not WAV, or a sample format that is not in `_WIDTHS`
    TOO_LONG = 3


def decode_wavs(audio_bytes: tf.Tensor, max_samples: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Decode a batch of WAV files with `decode_wav`. A file that cannot be decoded does not fail the others.

    Args:
        audio_bytes: the files' bytes, a string tensor `(batch,)`.
        max_samples: the maximum length of a recording, after resampling.

    Returns:
        Samples `(batch, samples)`, float32, padded with zeros; the number of samples `(batch,)`, int32; an
        `AudioStatus` `(batch,)`, int32.
    """

    def decode(contents):
        waveform, status = decode_wav(contents, max_samples)
        return waveform, tf.size(waveform), status

    nothing = tf.zeros([0]), tf.constant(0), tf.constant(AudioStatus.BROKEN, tf.int32)
    return map_rows_ignoring_errors(decode, audio_bytes, nothing)


def decode_wav(contents: tf.Tensor, max_samples: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Decode one WAV file of PCM (8 to 32 bits) or floats (32 or 64 bits), average its channels and resample it.

    A truncated file is read up to its end.

    Returns:
        Samples `(samples,)`, float32, at `SAMPLE_RATE`, and an `AudioStatus`. There are no samples if not `DECODED`.

    Raises:
        tf.errors.InvalidArgumentError: the file is broken.
    """
    is_riff = tf.strings.substr(contents, 0, 4) == b"RIFF"
    is_wave = tf.cond(is_riff, lambda: tf.strings.substr(contents, 8, 4) == b"WAVE", lambda: False)
    other = tf.where(tf.strings.length(contents) == 0, AudioStatus.BROKEN, AudioStatus.UNSUPPORTED)
    header, data, size = _find_chunks(contents)
    has_all = tf.where((header >= 0) & (data >= 0), AudioStatus.DECODED, AudioStatus.BROKEN)
    status = tf.where(is_wave, has_all, other)
    decode = partial(_decode, contents, header, data, size, max_samples)
    return tf.cond(status == AudioStatus.DECODED, decode, lambda: (tf.zeros([0]), status))


def are_sounds(waveform: tf.Tensor) -> tf.Tensor:
    """Return whether all samples `(..., samples)` are finite and in the range of audio, `(...)`."""
    return tf.reduce_all(tf.abs(waveform) <= LARGEST_SAMPLE, axis=-1)  # false for NaN as well


def _decode(contents, header, data, size, max_samples):
    kind, channels, rate = _read_header(contents, header)
    width = tf.gather(tf.constant(_WIDTHS, tf.int64), tf.maximum(kind, 0)) * tf.maximum(channels, 1)
    frames = size // width
    is_known = (kind >= 0) & (channels >= 1) & (channels <= MAX_CHANNELS)
    is_known &= (rate >= LOWEST_RATE) & (rate <= HIGHEST_RATE)
    is_too_long = resampled_length(frames, tf.maximum(rate, 1), SAMPLE_RATE) > max_samples
    good = tf.where(is_too_long, AudioStatus.TOO_LONG, AudioStatus.DECODED)
    status = tf.where(is_known, good, AudioStatus.UNSUPPORTED)

    def decode():
        raw = tf.strings.substr(contents, data, frames * width)
        samples = _to_samples(raw, kind)
        waveform = tf.reduce_mean(tf.reshape(samples, tf.stack([frames, channels])), axis=1)
        is_good = are_sounds(waveform)
        same = (rate == SAMPLE_RATE) | ~is_good | (frames == 0)
        waveform = tf.cond(same, lambda: waveform, lambda: resample(waveform, rate, SAMPLE_RATE))
        status = tf.where(is_good, AudioStatus.DECODED, AudioStatus.BROKEN)
        return waveform[: tf.where(is_good, tf.size(waveform), 0)], status

    return tf.cond(status == AudioStatus.DECODED, decode, lambda: (tf.zeros([0]), status))


def _find_chunks(contents):
    """Return the positions of the header and of the samples, -1 if missing, and the size of the samples in bytes."""
    end = tf.cast(tf.strings.length(contents), tf.int64)

    def walk(place, header, data, size):
        name = tf.strings.substr(contents, place, 4)
        size = tf.cast(tf.io.decode_raw(tf.strings.substr(contents, place + 4, 4), tf.int32)[0], tf.int64) % 2**32
        place += 8
        header = tf.where((name == b"fmt ") & (header < 0), place, header)
        data = tf.where(name == b"data", place, data)
        return place + size + size % 2, header, data, tf.minimum(size, end - place)

    nowhere = tf.constant(-1, tf.int64)
    first = (tf.constant(12, tf.int64), nowhere, nowhere, tf.constant(0, tf.int64))
    chunks = tf.while_loop(
        lambda place, header, data, size: (data < 0) & (place + 8 <= end), walk, first, maximum_iterations=_MAX_CHUNKS
    )
    return chunks[1:]


def _read_header(contents, place):
    """Return the index of the sample format in `_WIDTHS`, or -1, the channels and the rate."""
    fields = tf.io.decode_raw(tf.strings.substr(contents, place, 16), tf.uint16)
    fields = tf.unstack(tf.cast(tf.ensure_shape(fields, (8,)), tf.int64))
    tag, channels, rate_low, rate_high, _, _, align, bits = fields
    tag = tf.cond(tag == _EXTENSIBLE, lambda: _extended_tag(contents, place), lambda: tag)
    width = (bits + 7) // 8
    is_whole = (width * channels == align) & (bits > 0)
    is_pcm = is_whole & (tag == _PCM) & (width <= 4)
    is_float = is_whole & (tag == _FLOAT) & ((bits == 32) | (bits == 64))
    kind = tf.where(is_pcm, width - 1, tf.where(is_float, 3 + bits // 32, -1))
    return tf.cast(kind, tf.int32), channels, rate_low + 2**16 * rate_high


def _extended_tag(contents, place):
    tag = tf.io.decode_raw(tf.strings.substr(contents, place + 24, 2), tf.uint16)[0]
    is_common = tf.strings.substr(contents, place + 26, len(_GUID_TAIL)) == _GUID_TAIL
    return tf.where(is_common, tf.cast(tag, tf.int64), _EXTENSIBLE)


def _to_samples(raw, kind):
    """Convert bytes of a sample format, by its index in `_WIDTHS`, to numbers from about -1 to 1."""

    def read(dtype):
        return tf.cast(tf.io.decode_raw(raw, dtype), tf.float32)

    def from_24_bits():
        digits = tf.reshape(tf.io.decode_raw(raw, tf.uint8), [-1, 3])
        low, middle, high = tf.unstack(tf.cast(digits, tf.int32), axis=1)
        return tf.cast(low + 2**8 * middle + 2**16 * (high - 2**8 * (high // 2**7)), tf.float32) / 2**23

    branches = [
        lambda: (read(tf.uint8) - 128) / 2**7,
        lambda: read(tf.int16) / 2**15,
        from_24_bits,
        lambda: read(tf.int32) / 2**31,
        lambda: read(tf.float32),
        lambda: read(tf.float64),
    ]
    return tf.switch_case(kind, branches)


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
    pair = (rate, tf.constant(new_rate, tf.int64))
    common, _ = tf.while_loop(lambda _, rest: rest > 0, lambda number, rest: (rest, number % rest), pair)
    length = tf.size(waveform, tf.int64)
    apart = _APART * rate // tf.minimum(rate, new_rate)
    periods = (length + apart) // (rate // common) + 1
    size, new_size = periods * (rate // common), periods * (new_rate // common)
    spectrum = tf.signal.rfft(waveform, [tf.cast(size, tf.int32)])
    lower_size = periods * tf.minimum(rate, new_rate) // common  # of the transform at the lower rate
    place = tf.cast(tf.range(tf.size(spectrum, tf.int64)), tf.float32) / (tf.cast(lower_size, tf.float32) / 2)
    falling = tf.clip_by_value((_STOPPED - place) / (_STOPPED - _PASSED), 0.0, 1.0)
    spectrum *= tf.cast(tf.square(tf.sin(falling * (math.pi / 2))), spectrum.dtype)
    samples = tf.signal.irfft(spectrum, [tf.cast(new_size, tf.int32)]) * tf.cast(new_size / size, tf.float32)
    return samples[: resampled_length(length, rate, new_rate)]
