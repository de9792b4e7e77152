"""`attention-apps transcribe`; what it shares with the other commands is in `test_predict.py`."""

import io
import json
import re
import sys
import time
import tracemalloc

import numpy as np
import PIL.Image
import pytest
import soundfile

from attention_apps.cli import main
from attention_apps.cli.predict import PredictCommand
from attention_apps.preprocessing.audio import SAMPLE_RATE
from tests.applications.recognizers import make_recognizer, say, wav_bytes


@pytest.fixture(scope="module")
def recognizer():
    return make_recognizer()


@pytest.fixture
def run(recognizer, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(PredictCommand, "load", lambda command, options: recognizer)
    (tmp_path / "a.wav").write_bytes(wav_bytes(say("AB C")))
    (tmp_path / "b.flac").write_bytes(wav_bytes(say("CA"), file_format="FLAC"))
    (tmp_path / "text.wav").write_text("no recording")

    def run(*arguments):
        names = [str(tmp_path / name) if name.endswith((".wav", ".flac")) else name for name in arguments]
        code = main(["transcribe", *names])
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err

    return run


def test_a_recording_gives_a_line(run, recognizer, tmp_path):
    assert run("a.wav")[:2] == (0, [recognizer.transcribe(tmp_path / "a.wav").text])


def test_json_has_the_words_with_their_times(run, recognizer, tmp_path):
    code, lines, _ = run("a.wav", "text.wav", "b.flac", "--json")
    assert code == 1
    first, failed, last = map(json.loads, lines)
    transcript = recognizer.transcribe(tmp_path / "a.wav")
    assert first["text"] == transcript.text
    assert first["words"] == [word._asdict() for word in transcript.words]
    assert set(first["words"][0]) == {"word", "start", "end", "confidence"}
    assert first["seconds"] == pytest.approx(1.2, abs=0.01)
    assert "text.wav" in failed["error"]
    assert failed["text"] is None
    assert last["source"].endswith("b.flac")


def test_timestamps_are_a_line_for_each_word(run, recognizer, tmp_path):
    _, lines, _ = run("a.wav", "--timestamps")
    words = recognizer.transcribe(tmp_path / "a.wav").words
    assert lines == [f"{word.start:.2f} {word.end:.2f} {word.confidence:.2f} {word.word}" for word in words]
    assert lines


@pytest.mark.parametrize("kind", ["srt", "vtt"])
def test_subtitles_are_those_of_the_transcript(run, recognizer, tmp_path, kind):
    _, lines, _ = run("a.wav", f"--{kind}")
    transcript = recognizer.transcribe(tmp_path / "a.wav")
    assert lines == getattr(transcript, f"to_{kind}")().splitlines()
    assert any(" --> " in line for line in lines)


@pytest.mark.parametrize("arguments", [("a.wav", "b.flac", "--srt"), ("a.wav", "--vtt", "--json")])
def test_subtitles_are_for_one_recording(run, arguments):
    code, lines, errors = run(*arguments)
    assert (code, lines) == (2, [])
    assert "t` is for one recording" in errors


def test_a_folder_of_recordings_has_no_subtitles(run, tmp_path):
    code, lines, errors = run(str(tmp_path), "--srt")
    assert (code, lines) == (2, [])
    assert "`--srt` is for one recording" in errors


def test_standard_input_is_read_as_a_file_is(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(wav_bytes(say("AB C")))))
    assert run("-")[1] == run("a.wav")[1]


def test_what_it_is_not_sure_of_is_left_out(run):
    code, lines, errors = run("a.wav", "--min-confidence", "0.99")
    assert (code, lines) == (0, [""])
    assert "the model is not sure" in errors
    assert run("a.wav", "--min-confidence", "0.99", "--quiet") == (0, [""], "")


@pytest.fixture
def long_recording(tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # which makes rich believe in a terminal
    (tmp_path / "long.wav").write_bytes(wav_bytes(np.tile(say("ABC"), 9)))


def test_a_long_recording_has_a_bar_on_a_terminal_unless_it_should_be_quiet(run, long_recording, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    code, lines, told = run("long.wav", "a.wav")
    assert (code, len(lines)) == (0, 2)
    assert re.search(r"\d s", told)
    assert run("long.wav", "a.wav", "--quiet") == (0, lines, "")


def test_several_recordings_whose_texts_go_elsewhere_have_one_bar(run, long_recording):
    _, _, told = run("long.wav", "a.wav")
    assert "2/2" in told
    assert not re.search(r"\d s", told)


def test_pictures_and_pages_are_written(run, tmp_path):
    run("a.wav", "--plot", f"{tmp_path}/pictures", "--html", f"{tmp_path}/pages")
    assert (tmp_path / "pictures" / "a_attention.png").exists()
    assert "Transcript" in (tmp_path / "pages" / "a_attention.html").read_text()


@pytest.mark.slow
def test_two_hours_are_drawn_in_bounded_time_and_memory(run, tmp_path):
    block, speech = np.zeros(30 * SAMPLE_RATE, np.float32), say("AB C")
    block[: len(speech)] = speech
    with soundfile.SoundFile(tmp_path / "hours.flac", "w", SAMPLE_RATE, 1) as file:
        for _ in range(240):
            file.write(block)
    folders = ["--plot", str(tmp_path / "pictures"), "--html", str(tmp_path / "pages"), "--quiet"]
    run("a.wav", *folders)  # traced already, which takes time and memory too
    tracemalloc.start()
    begin = time.process_time()
    try:
        code, _, _ = run("hours.flac", *folders)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert code == 0
    assert time.process_time() - begin < 180
    assert most < 0.25 * 240 * block.nbytes
    assert max(PIL.Image.open(tmp_path / "pictures" / "hours_attention.png").size) <= 6000
    page = tmp_path / "pages" / "hours_attention.html"
    assert page.read_text().count("<tr><td>") >= 240
    assert page.stat().st_size < 20e6
