"""WAV files in the graph: those that are read as `read_audio` reads them, and what becomes of the others."""

import struct

import numpy as np
import pytest
import soxr
import tensorflow as tf

from attention_apps.preprocessing.audio import SAMPLE_RATE, read_audio
from attention_apps.preprocessing.wav_graph import AudioStatus, decode_wavs, resample, resampled_length
from tests.applications.recognizers import say, wav_bytes

MAX_SAMPLES = 2 * SAMPLE_RATE
SPEECH = say("AB C")
STEREO = np.stack([SPEECH, 0.3 * SPEECH[::-1]], axis=1)
DEPTHS = ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")
DATA = np.arange(1000, dtype="<i2").tobytes()

decode = tf.function(
    lambda contents: decode_wavs(contents, MAX_SAMPLES),
    input_signature=[tf.TensorSpec([None], tf.string)],
    autograph=False,
)


def make_wav(data=DATA, size=None, tag=1, channels=1, rate=SAMPLE_RATE, bits=16, extra=b"", before=b"", after=b""):
    """A file whose header says what it is told to."""
    align = channels * ((bits + 7) // 8)
    header = struct.pack("<HHIIHH", tag, channels, rate, rate * align % 2**32, align % 2**16, bits) + extra
    size = len(data) if size is None else size
    body = b"WAVE" + before + chunk(b"fmt ", header) + b"data" + struct.pack("<I", size) + data + after
    return b"RIFF" + struct.pack("<I", len(body)) + body


def chunk(name, content):
    return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


GOOD = {
    **{depth: wav_bytes(SPEECH, subtype=depth) for depth in DEPTHS},
    **{f"stereo {depth}": wav_bytes(STEREO, subtype=depth) for depth in DEPTHS},
    "extensible": wav_bytes(STEREO, file_format="WAVEX", subtype="PCM_24"),
    "extensible floats": wav_bytes(SPEECH, file_format="WAVEX", subtype="FLOAT"),
    "chunks before": make_wav(before=chunk(b"LIST", b"odd") + chunk(b"bext", b"\0" * 602)),
    "chunks after": make_wav(after=chunk(b"LIST", b"text")),
    "12 of 16 bits": make_wav(bits=12),
    "a byte too many": make_wav(DATA + b"x"),
    "size unknown": make_wav(size=2**32 - 1),
    "truncated": make_wav()[:-501],
    "wrong size of the whole": make_wav().replace(struct.pack("<I", len(make_wav()) - 8), b"\0\0\0\0", 1),
}
BAD = {
    "empty": (b"", AudioStatus.BROKEN),
    "text": (b"this is no recording, but a text", AudioStatus.UNSUPPORTED),
    "FLAC": (wav_bytes(SPEECH, file_format="FLAC"), AudioStatus.UNSUPPORTED),
    "RF64": (wav_bytes(SPEECH, file_format="RF64"), AudioStatus.UNSUPPORTED),
    "mu-law": (wav_bytes(SPEECH, subtype="ULAW"), AudioStatus.UNSUPPORTED),
    "ADPCM": (wav_bytes(SPEECH, subtype="MS_ADPCM"), AudioStatus.UNSUPPORTED),
    "a film": (make_wav().replace(b"WAVE", b"AVI "), AudioStatus.UNSUPPORTED),
    "RIFF alone": (b"RIFF", AudioStatus.BROKEN),
    "no header": (make_wav().replace(b"fmt ", b"fmtx"), AudioStatus.BROKEN),
    "no data": (make_wav().replace(b"data", b"dada"), AudioStatus.BROKEN),
    "half a header": (make_wav()[:30], AudioStatus.BROKEN),
    "no channels": (make_wav(channels=0), AudioStatus.UNSUPPORTED),
    "33 channels": (make_wav(channels=33), AudioStatus.UNSUPPORTED),
    "no bits": (make_wav(bits=0), AudioStatus.UNSUPPORTED),
    "48 bits": (make_wav(bits=48), AudioStatus.UNSUPPORTED),
    "16-bit floats": (make_wav(tag=3), AudioStatus.UNSUPPORTED),
    "unknown kind": (make_wav(tag=0xFFFE, extra=b"\x16\0" + b"\1" * 22), AudioStatus.UNSUPPORTED),
    "rate 0": (make_wav(rate=0), AudioStatus.UNSUPPORTED),
    "rate 3,999": (make_wav(rate=3_999), AudioStatus.UNSUPPORTED),
    "rate 4,294,967,295": (make_wav(rate=2**32 - 1), AudioStatus.UNSUPPORTED),
    "NaN": (wav_bytes(np.full(999, np.nan, np.float32), subtype="FLOAT"), AudioStatus.BROKEN),
    "infinity": (wav_bytes(np.full(999, np.inf, np.float32), 8_000, subtype="FLOAT"), AudioStatus.BROKEN),
    "too large numbers": (wav_bytes(np.full(999, 1e30), subtype="DOUBLE"), AudioStatus.BROKEN),
    "too long": (wav_bytes(np.zeros(MAX_SAMPLES + 1, np.float32)), AudioStatus.TOO_LONG),
    "too long when resampled": (wav_bytes(np.zeros(8_001, np.float32), 4_000), AudioStatus.TOO_LONG),
    "300 chunks": (make_wav(before=chunk(b"JUNK", b"") * 300), AudioStatus.BROKEN),
}


def test_files_at_our_rate_are_read_bit_for_bit_as_by_libsndfile():
    waveforms, lengths, status = decode(list(GOOD.values()))
    for row, (name, contents) in enumerate(GOOD.items()):
        expected = read_audio(contents)
        assert status[row] == AudioStatus.DECODED, name
        assert lengths[row] == len(expected), name
        np.testing.assert_array_equal(waveforms[row, : len(expected)], expected, err_msg=name)
        assert not waveforms[row, len(expected) :].numpy().any()


def test_each_bad_file_gets_its_status_among_good_ones():
    waveforms, lengths, status = decode([GOOD["PCM_16"], *(contents for contents, _ in BAD.values()), GOOD["FLOAT"]])
    assert dict(zip(BAD, status.numpy()[1:-1].tolist(), strict=True)) == {name: one for name, (_, one) in BAD.items()}
    assert not lengths[1:-1].numpy().any()
    assert not waveforms[1:-1].numpy().any()
    for row, name in ((0, "PCM_16"), (-1, "FLOAT")):
        np.testing.assert_array_equal(waveforms[row], read_audio(GOOD[name]))


def test_files_of_other_rates_are_resampled_each_by_its_own():
    """Close to soxr, but for the last tenth of the band, of which these tones have little."""
    rates = (8_000, 11_025, 16_000, 22_050, 44_100, 48_000)
    files = [wav_bytes(say("A"), rate) for rate in rates]
    waveforms, lengths, status = decode(files)
    assert not status.numpy().any()
    for row, contents in enumerate(files):
        expected = read_audio(contents)
        assert lengths[row] == len(expected)
        np.testing.assert_allclose(waveforms[row, : len(expected)], expected, atol=3e-3)


def test_no_samples_are_no_error():
    for rate in (SAMPLE_RATE, 8_000):
        _, lengths, status = decode([wav_bytes(np.zeros(0, np.float32), rate)])
        assert (lengths[0], status[0]) == (0, AudioStatus.DECODED)


@pytest.mark.parametrize("name", ["PCM_16", "stereo PCM_24", "extensible floats"])
def test_whatever_is_changed_in_a_file_it_has_a_status_and_finite_samples(name):
    random, files = np.random.default_rng(0), []
    for number in range(100):
        contents = bytearray(GOOD[name])
        for _ in range(random.integers(1, 5)):
            contents[random.integers(80 if number % 4 else len(contents))] = random.integers(256)
        files.append(bytes(contents[: random.integers(len(contents))] if number % 3 == 0 else contents))
    waveforms, lengths, status = (array.numpy() for array in decode([*files, GOOD[name]]))
    assert np.isfinite(waveforms).all()
    assert set(status) <= set(AudioStatus)
    assert (lengths[status != AudioStatus.DECODED] == 0).all()
    np.testing.assert_array_equal(waveforms[-1, : lengths[-1]], read_audio(GOOD[name]))


NEW_RATE = 16_000
graph = tf.function(
    lambda waveform, rate: resample(waveform, rate, NEW_RATE),
    input_signature=[tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.int64)],
    autograph=False,
)


def noise(rate, highest, seconds=0.7):
    """Noise up to a frequency, soft at its ends, which would hold others if they were hard."""
    size = round(seconds * rate) + 3
    spectrum = np.fft.rfft(np.random.default_rng(rate).normal(size=size))
    spectrum[np.fft.rfftfreq(size, 1 / rate) > highest] = 0
    samples = np.fft.irfft(spectrum, size) * np.hanning(size)
    return (samples / np.abs(samples).max()).astype(np.float32)


@pytest.mark.parametrize("rate", [8_000, 11_025, 15_999, 16_001, 22_050, 44_100, 48_000, 96_000, 383_999])
def test_it_is_what_soxr_makes_of_it(rate):
    """Within a thousandth, where the sound is below 0.9 of what the lower rate can hold."""
    samples = noise(rate, 0.45 * min(rate, NEW_RATE))
    ours, expected = graph(samples, rate).numpy(), soxr.resample(samples, rate, NEW_RATE)
    assert len(ours) == len(expected) == int(resampled_length(len(samples), rate, NEW_RATE))
    np.testing.assert_allclose(ours, expected, atol=1e-3)


def test_what_the_new_rate_cannot_hold_is_gone():
    tone = np.sin(2 * np.pi * 12_000 * np.arange(44_100) / 44_100).astype(np.float32)
    left = graph(tone, 44_100).numpy()[1_000:-1_000]
    assert np.abs(left).max() < 1e-4


@pytest.mark.parametrize("rate", [4_000, 384_000])
def test_few_samples_and_the_limits_of_the_rates(rate):
    for length in (1, 2, 97):
        samples = np.ones(length, np.float32)
        ours = graph(samples, rate).numpy()
        assert len(ours) == int(np.floor(length * NEW_RATE / rate + 0.5))
        assert np.isfinite(ours).all()
