import io
import sys

import numpy as np
import pytest

from attention_apps.preprocessing.audio import SAMPLE_RATE, audio_seconds, header_seconds, read_audio
from attention_apps.preprocessing.media import media_format

av = pytest.importorskip("av")
SECONDS, RATE, PITCH = 1.5, 44_100, 440


def encode(container, codec, rate=RATE, layout="stereo"):
    """A file with a tone, in the left channel only if there are two."""
    buffer, channels = io.BytesIO(), {"mono": 1, "stereo": 2}[layout]
    tone = 0.5 * np.sin(2 * np.pi * PITCH * np.arange(round(SECONDS * rate)) / rate).astype(np.float32)
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
    return encode("mp4", "aac")


def check_tone(waveform, amplitude):
    """A tone of the right pitch and loudness, away from its ends."""
    assert len(waveform) / SAMPLE_RATE == pytest.approx(SECONDS, abs=0.1)
    middle = waveform[SAMPLE_RATE // 4 : SAMPLE_RATE]
    spectrum = np.abs(np.fft.rfft(middle))
    assert np.argmax(spectrum) * SAMPLE_RATE / len(middle) == pytest.approx(PITCH, abs=3)
    assert np.abs(middle).max() == pytest.approx(amplitude, rel=0.15)


def test_the_channels_of_an_m4a_are_averaged(m4a, tmp_path):
    check_tone(read_audio(m4a), 0.25)
    (tmp_path / "a.m4a").write_bytes(m4a)
    check_tone(read_audio(tmp_path / "a.m4a"), 0.25)
    assert audio_seconds(tmp_path / "a.m4a") == pytest.approx(SECONDS, abs=0.1)
    assert header_seconds(tmp_path / "a.m4a") == pytest.approx(SECONDS, abs=0.1)


def test_a_webm_of_a_browser_is_read():
    check_tone(read_audio(encode("webm", "libopus", rate=48_000, layout="mono")), 0.5)


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
