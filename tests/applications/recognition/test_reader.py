import io

import numpy as np
import pytest
import rich.console
import rich.progress
import tensorflow as tf
from rich.console import Console

from attention_apps.applications.parts import Reading, Source
from attention_apps.applications.recognition.reader import AudioReader, make_source
from attention_apps.preprocessing.audio import SAMPLE_RATE
from tests.applications.recognizers import make_config, say, wav_bytes

SPEECH = say("AB C")
FILE = wav_bytes(SPEECH, subtype="PCM_16")


@pytest.fixture(scope="module")
def reader():
    """It hears at most 4 seconds at a time."""
    return AudioReader(make_config())


def read(reader, item):
    return list(reader.read(item, None).sources)


def test_a_short_recording_is_one_source_that_fits_the_signature(reader):
    (source,) = read(reader, (SPEECH, SAMPLE_RATE))
    assert source.place == (0.0, source.length) == (0.0, pytest.approx(1.2))
    np.testing.assert_allclose(source.tensors["waveform"], SPEECH, atol=1e-6)
    for name, spec in reader.signature.items():
        assert spec.shape.is_compatible_with((1, *np.shape(source.tensors[name])))
    assert source.tensors["length"] == len(SPEECH)


def test_a_long_recording_is_cut_without_gaps(reader):
    sources = read(reader, (np.tile(SPEECH, 9), SAMPLE_RATE))
    assert len(sources) > 2
    assert all(source.length <= 4 for source in sources)
    assert [left.place[1] for left in sources[:-1]] == pytest.approx([right.place[0] for right in sources[1:]])
    assert sources[-1].place[1] == pytest.approx(9 * 1.2)


def test_files_say_their_own_rate_whatever_comes_with_them(reader):
    for item in (wav_bytes(SPEECH, sample_rate=8000), (wav_bytes(SPEECH, sample_rate=8000), 44_100)):
        assert read(reader, item)[0].length == pytest.approx(2.4, abs=0.01)


@pytest.mark.parametrize(
    ("item", "error"),
    [
        (b"", ValueError),
        (b"text", ValueError),
        ("missing.wav", FileNotFoundError),
        (np.zeros(99, np.float32), ValueError),
        ((np.zeros((2, 3, 4), np.float32), SAMPLE_RATE), ValueError),
        ((np.zeros(4000, np.float32), 99), ValueError),
        ((np.zeros(4000, np.float32), 385_000), ValueError),
    ],
    ids=["empty", "text", "missing", "no rate", "three axes", "low rate", "high rate"],
)
def test_what_cannot_be_read_raises(reader, item, error):
    with pytest.raises(error):
        read(reader, item)


def test_damage_after_a_while_comes_after_what_can_be_read(reader):
    waveform = np.tile(SPEECH, 50)
    waveform[50 * SAMPLE_RATE] = np.nan
    sources = iter(reader.read((waveform, SAMPLE_RATE), None).sources)
    for _ in range(5):
        assert next(sources).tensors is not None
    with pytest.raises(ValueError, match="not finite"):
        list(sources)


@pytest.mark.parametrize(
    "waveform",
    [np.zeros(2 * SAMPLE_RATE), np.full(SAMPLE_RATE, 0.25), SPEECH[:800]],
    ids=["silence", "a constant", "0.05 s"],
)
def test_in_silence_and_in_less_than_a_word_there_is_nothing_to_hear(waveform):
    source = make_source(np.float32(waveform), start=3.0)
    assert source.tensors is None
    assert source.place == (3.0, 3.0 + len(waveform) / SAMPLE_RATE)


# In a graph

STATUSES = {
    "ok": [FILE, wav_bytes(np.stack([SPEECH] * 2, axis=1), subtype="PCM_24"), wav_bytes(SPEECH, 44_100)],
    "undecodable audio": [b"", FILE[:30], wav_bytes(np.full(9_999, np.nan, np.float32), subtype="FLOAT")],
    "unsupported audio format": [b"RIFX" + FILE[4:], wav_bytes(SPEECH, file_format="FLAC")],
    "audio too long": [wav_bytes(np.tile(SPEECH, 4))],
    "audio too short": [wav_bytes(SPEECH[4_000:5_000]), wav_bytes(np.zeros(0, np.float32))],
    "silent": [wav_bytes(np.zeros(9_999, np.float32))],
}


def test_a_graph_gives_every_file_its_status_and_hears_the_good_ones_alone(reader):
    files = [(status, file) for status, several in STATUSES.items() for file in several]
    source, context = reader.read_files(tf.constant([file for _, file in files]))
    assert [status.decode() for status in context["status"].numpy()] == [status for status, _ in files]
    lengths = source["length"].numpy()
    assert [length > 0 for length in lengths] == [status == "ok" for status, _ in files]
    np.testing.assert_allclose(source["waveform"][0, : lengths[0]], SPEECH, atol=1e-4)


def test_a_graph_of_bad_files_alone_has_a_source(reader):
    source, _ = reader.read_files(tf.constant(STATUSES["undecodable audio"]))
    assert source["waveform"].shape[0] == 3
    assert not source["length"].numpy().any()


def test_a_graph_reads_waveforms_up_to_their_length(reader):
    waveform = np.stack([np.tile(SPEECH, 4)] * 6)
    waveform[0, len(SPEECH) :] = np.nan  # padding
    waveform[1, 99] = np.nan
    waveform[4] = 0.3
    lengths = tf.constant([len(SPEECH), 9_999, 1_599, 10**9, 9_999, -5])
    source, context = reader.read_waveforms(tf.constant(waveform), lengths)
    expected = ["ok", "undecodable audio", "audio too short", "audio too long", "silent", "audio too short"]
    assert [status.decode() for status in context["status"].numpy()] == expected
    np.testing.assert_array_equal(source["waveform"][0], SPEECH)


def test_the_ways_to_call_an_export_come_with_a_call_that_works(reader):
    for raw_input in reader.raw_inputs().values():
        assert raw_input.notes.keys() == raw_input.specs.keys() == raw_input.example.keys()
        example = {name: tf.constant(raw_input.example[name], spec.dtype) for name, spec in raw_input.specs.items()}
        _, context = raw_input.in_graph(**example)
        assert context["status"].numpy().tolist() == [b"ok"]
        assert any("at most 4 seconds" in note for note in raw_input.notes.values())


# The progress bar


@pytest.fixture
def terminal(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(rich.console, "Console", lambda stderr: Console(file=written, force_terminal=True))
    return written


def hear(progress, ends):
    """A recording in several pieces, of which the last ends with it."""
    for number, end in enumerate(ends, 1):
        progress(Reading((), b"some bytes"), Source(None, place=(0.0, end)), number == len(ends))


def test_a_long_recording_has_a_bar_that_is_gone_at_its_end(reader, terminal):
    with reader.progress(quiet=False) as progress:
        hear(progress, [4.0, 8.0, 9.0])
        assert "8 s" in terminal.getvalue()
        assert terminal.getvalue().endswith("\x1b[1A\x1b[2K")
        before = len(terminal.getvalue())
        hear(progress, [3.0, 5.0])
        assert "3 s" in terminal.getvalue()[before:]
        assert "8 s" not in terminal.getvalue()[before:]


@pytest.mark.parametrize(("quiet", "ends"), [(True, [4.0, 8.0]), (False, [2.0])])
def test_a_short_recording_has_none_and_quiet_is_quiet(reader, terminal, quiet, ends):
    with reader.progress(quiet) as progress:
        hear(progress, ends)
    assert terminal.getvalue() == ""


def test_the_bar_of_a_file_is_as_long_as_the_file(reader, terminal, monkeypatch, tmp_path):
    (tmp_path / "long.wav").write_bytes(wav_bytes(np.tile(SPEECH, 10)))
    totals, add_task = [], rich.progress.Progress.add_task
    monkeypatch.setattr(
        rich.progress.Progress,
        "add_task",
        lambda self, name, total: totals.append(total) or add_task(self, name, total=total),
    )
    with reader.progress(quiet=False) as progress:
        for item in (tmp_path / "long.wav", FILE, "missing.wav"):
            for is_last in (False, True):
                progress(Reading((), item), Source(None, place=(0.0, 4.0)), is_last)
    assert totals == [pytest.approx(12.0), None, None]
