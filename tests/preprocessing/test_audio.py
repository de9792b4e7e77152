import io
import sys

import numpy as np
import pytest
import soundfile
import soxr

from attention_apps.preprocessing.audio import (
    SAMPLE_RATE,
    audio_blocks,
    audio_seconds,
    header_seconds,
    media_format,
    read_audio,
)

RATE, SECONDS = 22_050, 1.3
LOSSLESS = [("WAV", "PCM_U8"), ("WAV", "PCM_16"), ("WAV", "PCM_24"), ("WAV", "PCM_32"), ("WAV", "FLOAT")]
LOSSLESS += [("WAV", "DOUBLE"), ("FLAC", "PCM_16"), ("FLAC", "PCM_24"), ("AIFF", "PCM_16"), ("NIST", "PCM_16")]
LOSSY = [("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")]


def tone(rate=RATE, seconds=SECONDS, frequency=440.0):
    time = np.arange(round(rate * seconds)) / rate
    return (0.4 * np.sin(2 * np.pi * frequency * time)).astype("float32")


def encode(samples, rate=RATE, form="WAV", subtype=None):
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=form, subtype=subtype)
    return buffer.getvalue()


@pytest.mark.parametrize(("form", "subtype"), LOSSLESS)
def test_files_are_read_by_their_contents_at_16_khz(form, subtype, tmp_path):
    path = tmp_path / "recording.raw"  # an ending that says nothing
    path.write_bytes(encode(tone(), form=form, subtype=subtype))
    expected = soxr.resample(tone(), RATE, SAMPLE_RATE)
    for source in (path, str(path), path.read_bytes(), bytearray(path.read_bytes())):
        samples = read_audio(source)
        assert samples.dtype == np.float32
        np.testing.assert_allclose(samples, expected, atol=0.01 if subtype == "PCM_U8" else 2e-4)
    assert audio_seconds(path) == header_seconds(path) == pytest.approx(SECONDS)


@pytest.mark.parametrize(("form", "subtype"), LOSSY)
def test_lossy_formats_are_read(form, subtype):
    rate = 24_000  # one that Opus knows
    samples = read_audio(encode(tone(rate), rate, form, subtype))
    expected = tone(SAMPLE_RATE)
    assert abs(len(samples) - len(expected)) <= 0.05 * SAMPLE_RATE
    middle = slice(4000, 12000)
    assert np.corrcoef(samples[middle], expected[middle])[0, 1] > 0.99


def test_an_mp3_file_read_in_pieces_is_the_one_read_at_once():
    data = encode(np.random.default_rng(0).normal(0, 0.1, 3 * SAMPLE_RATE), SAMPLE_RATE, "MP3")
    expected, _ = soundfile.read(io.BytesIO(data), dtype="float32")
    np.testing.assert_allclose(read_audio(data), expected, atol=1e-6)


def test_channels_are_averaged():
    left, right = tone(SAMPLE_RATE), tone(SAMPLE_RATE, frequency=300.0)
    stereo = np.stack([left, right], axis=1)
    np.testing.assert_allclose(read_audio(stereo, SAMPLE_RATE), (left + right) / 2, atol=1e-7)
    np.testing.assert_allclose(read_audio(encode(stereo, SAMPLE_RATE)), (left + right) / 2, atol=1e-4)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "float16", "float32", "float64"])
def test_arrays_of_every_type_are_brought_to_one_scale(dtype):
    samples = tone(SAMPLE_RATE)
    if dtype == "uint8":
        array = np.round(samples * 128 + 128).astype("uint8")
    elif dtype.startswith("int"):
        array = np.round(samples * float(np.iinfo(dtype).max)).astype(dtype)
    else:
        array = samples.astype(dtype)
    np.testing.assert_allclose(read_audio(array, SAMPLE_RATE), samples, atol=0.01 if "8" in dtype else 1e-3)


@pytest.mark.parametrize("rate", [4_000, 8_000, 11_025, 44_100, 384_000])
def test_blocks_are_the_whole_however_they_are_cut(rate):
    samples = np.random.default_rng(0).normal(0, 0.1, round(rate * 2.1)).astype("float32")
    whole = read_audio(samples, rate)
    assert len(whole) == pytest.approx(2.1 * SAMPLE_RATE, abs=2)
    blocks = list(audio_blocks(samples, rate, block_seconds=0.5))
    np.testing.assert_array_equal(np.concatenate(blocks), whole)
    if rate > 4096:
        assert len(blocks) > 2
        assert max(map(len, blocks)) < SAMPLE_RATE


def test_a_long_file_is_read_block_by_block(tmp_path):
    path = tmp_path / "long.flac"
    soundfile.write(path, np.zeros(8_000 * 300, "int16"), 8_000)
    lengths = [len(block) for block in audio_blocks(path, block_seconds=10)]
    assert sum(lengths) == 300 * SAMPLE_RATE
    assert max(lengths) < 12 * SAMPLE_RATE
    with pytest.raises(ValueError, match=r"long.flac is too long: it lasts more than the limit of 60 s"):
        read_audio(path, max_seconds=60)


def test_a_short_recording_is_read_as_it_is():
    assert len(read_audio(tone(SAMPLE_RATE, 0.05), SAMPLE_RATE)) == 800
    assert len(read_audio(encode(tone(8_000, 0.05), 8_000))) == 800


def test_clipped_and_loud_samples_are_kept():
    clipped = np.clip(5 * tone(SAMPLE_RATE), -1, 1)
    np.testing.assert_array_equal(read_audio(clipped, SAMPLE_RATE), clipped)
    np.testing.assert_array_equal(read_audio(encode(30_000 * clipped, SAMPLE_RATE, "WAV", "FLOAT")), 30_000 * clipped)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_samples_that_are_no_numbers_are_an_error_that_says_where(value, tmp_path):
    samples = tone(SAMPLE_RATE)
    samples[8000] = value
    path = tmp_path / "broken.wav"
    path.write_bytes(encode(samples, SAMPLE_RATE, "WAV", "FLOAT"))
    with pytest.raises(ValueError, match=r"broken.wav has samples that are not finite numbers, the first at 0.50 s"):
        read_audio(path)
    with pytest.raises(ValueError, match="The audio array has samples that are not finite"):
        read_audio(np.full(9, 1e300), SAMPLE_RATE)


def test_a_file_without_a_recording_is_named(tmp_path):
    contents = {
        "empty.wav": (b"", "is empty: it has no bytes"),
        "header.wav": (encode(tone()[:0]), "has no samples"),
        "header.mp3": (encode(tone(), form="MP3")[:100], "is not a recording, has an unknown format, or is damaged"),
        "text.wav": (b"These are words.\n" * 20, "is not a recording, has an unknown format, or is damaged"),
        "cut.wav": (encode(tone())[:30], "is not a recording|has no samples"),
        "cut.ogg": (encode(tone(), form="OGG")[:3000], "is not a recording, has an unknown format, or is damaged"),
    }
    for name, (data, message) in contents.items():
        path = tmp_path / name
        path.write_bytes(data)
        for read in (read_audio, audio_seconds):
            with pytest.raises(ValueError, match=f"{name} ({message})"):
                read(path)
        with pytest.raises(ValueError, match="The recording given as bytes"):
            read_audio(data)
    with pytest.raises(FileNotFoundError, match=r"Audio file not found: .*missing.wav"):
        read_audio(tmp_path / "missing.wav")
    with pytest.raises(ValueError, match="is a folder or a device, not an audio file"):
        read_audio(tmp_path)
    with pytest.raises(ValueError, match="URLs are not supported"):
        read_audio("https://example.org/a.wav")


def test_a_damaged_tail_costs_the_tail_only():
    noise = np.random.default_rng(0).normal(0, 0.1, 4 * RATE)
    for form in ("MP3", "FLAC", "WAV"):
        data = encode(noise, form=form)
        half = len(data) // 2
        garbage = bytes(np.random.default_rng(1).integers(0, 256, half, np.uint8))
        broken = data[:half] + (b"" if form == "WAV" else garbage)
        if form == "WAV":
            samples = read_audio(broken)
        else:
            with pytest.warns(UserWarning, match=r"given as bytes is damaged after [12].\d\d s; the audio before that"):
                samples = read_audio(broken)
        assert 1.5 * SAMPLE_RATE < len(samples) < 2.5 * SAMPLE_RATE
        expected = read_audio(data)[: len(samples)]
        assert np.abs(samples - expected)[:-4000].max() < 1e-3


def test_rates_out_of_bounds_are_an_error():
    for rate in (100, 3999, 384_001, 0, -8000, float("nan")):
        with pytest.raises(ValueError, match="The audio array must have a sample rate from 4,000 to 384,000 Hz"):
            read_audio(tone(), rate)
    with pytest.raises(ValueError, match=r"given as bytes must have a sample rate .* Received: 1,000,000 Hz"):
        read_audio(encode(tone(), 1_000_000))


def test_misuse_is_explained():
    with pytest.raises(ValueError, match="`sample_rate` must be given with an audio array"):
        read_audio(tone())
    with pytest.raises(ValueError, match=r"`sample_rate` is for arrays; a.wav states its own"):
        read_audio("a.wav", 8000)
    with pytest.raises(ValueError, match=r"must be \(samples,\) or \(samples, channels\).* shape=\(2, 16000\)"):
        read_audio(np.zeros((2, 16_000), "float32"), SAMPLE_RATE)
    with pytest.raises(ValueError, match=r"must hold floats, uint8, or int8 to int32. Received: complex"):
        read_audio(np.zeros(10, "complex64"), SAMPLE_RATE)
    with pytest.raises(ValueError, match="The audio array has no samples"):
        read_audio(np.zeros(0, "float32"), SAMPLE_RATE)


av = pytest.importorskip("av")
MEDIA_SECONDS, MEDIA_RATE, PITCH = 1.5, 44_100, 440


def media_encode(container, codec, rate=MEDIA_RATE, layout="stereo"):
    """A file with a tone, in the left channel only if there are two."""
    buffer, channels = io.BytesIO(), {"mono": 1, "stereo": 2}[layout]
    tone = 0.5 * np.sin(2 * np.pi * PITCH * np.arange(round(MEDIA_SECONDS * rate)) / rate).astype(np.float32)
    samples = np.zeros((channels, len(tone)), np.float32)
    samples[0] = tone
    with av.open(buffer, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate, layout=layout)
        frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout=layout)
        frame.sample_rate = rate
        resampler = av.AudioResampler(
            format=stream.format, layout=layout, rate=rate, frame_size=stream.frame_size or None
        )
        for part in [*resampler.resample(frame), *resampler.resample(None)]:
            file.mux(stream.encode(part))
        file.mux(stream.encode(None))
    return buffer.getvalue()


@pytest.fixture(scope="module")
def m4a():
    return media_encode("mp4", "aac")


def check_tone(waveform, amplitude):
    """A tone of the right pitch and loudness, away from its ends."""
    assert len(waveform) / SAMPLE_RATE == pytest.approx(MEDIA_SECONDS, abs=0.1)
    middle = waveform[SAMPLE_RATE // 4 : SAMPLE_RATE]
    spectrum = np.abs(np.fft.rfft(middle))
    assert np.argmax(spectrum) * SAMPLE_RATE / len(middle) == pytest.approx(PITCH, abs=3)
    assert np.abs(middle).max() == pytest.approx(amplitude, rel=0.15)


def test_the_channels_of_an_m4a_are_averaged(m4a, tmp_path):
    check_tone(read_audio(m4a), 0.25)
    (tmp_path / "a.m4a").write_bytes(m4a)
    check_tone(read_audio(tmp_path / "a.m4a"), 0.25)
    assert audio_seconds(tmp_path / "a.m4a") == pytest.approx(MEDIA_SECONDS, abs=0.1)
    assert header_seconds(tmp_path / "a.m4a") == pytest.approx(MEDIA_SECONDS, abs=0.1)


def test_a_webm_of_a_browser_is_read():
    check_tone(read_audio(media_encode("webm", "libopus", rate=48_000, layout="mono")), 0.5)


@pytest.mark.parametrize("size", [20, 700])
def test_a_damaged_file_is_an_error(m4a, size):
    with pytest.raises(ValueError, match="not a recording, has an unknown format, or is damaged"):
        read_audio(m4a[:size])


def test_without_pyav_the_error_names_the_command(m4a, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ValueError, match=r"pip install 'attention_apps\[media\]'"):
        read_audio(m4a)


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (b"#EXTM3U\nfile:///etc/passwd", None),
        (b"ffconcat version 1.0", None),
        (b"RIFF", None),
        (b"\x1aE\xdf\xa3", "matroska"),
    ],
)
def test_only_known_formats_are_given_to_ffmpeg(contents, expected):
    assert media_format(io.BytesIO(contents)) == expected


def test_a_file_without_sound_is_an_error():
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as file:
        stream = file.add_stream("mpeg4", rate=5, width=32, height=32, pix_fmt="yuv420p")
        for _ in range(3):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")))
        file.mux(stream.encode(None))
    with pytest.raises(ValueError, match="it has no sound track"):
        read_audio(buffer.getvalue())


@pytest.mark.parametrize("as_file", [True, False])
def test_a_damaged_chunk_prints_no_traceback(tmp_path, monkeypatch, as_file):
    """libsndfile then seeks to -1, which failed in a callback."""
    path, failures = tmp_path / "chunk.aiff", []
    soundfile.write(path, np.zeros(100), 8000, format="AIFF")
    path.write_bytes(path.read_bytes().replace(b"SSND", b"SS\0\0"))
    monkeypatch.setattr(sys, "unraisablehook", failures.append)
    with pytest.raises(ValueError, match="is not a recording, has an unknown format, or is damaged"):
        read_audio(path if as_file else path.read_bytes())
    assert failures == []
