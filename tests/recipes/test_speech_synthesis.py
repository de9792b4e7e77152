import re
import shutil

import numpy as np
import pytest

from attention_apps.preprocessing.audio import SAMPLE_RATE, read_audio
from tests.recipes.loading import load

grammar, synthesis = load("grammar", "speech_recognition"), load("synthesis", "speech_recognition")
needs_flite = pytest.mark.skipif(shutil.which("flite") is None, reason="flite is not installed")


def test_texts_are_letters_and_spaces():
    texts = [grammar.random_text(np.random.default_rng(seed)) for seed in range(400)]
    assert all(re.fullmatch("[A-Z]+( [A-Z]+)*", text) for text in texts)
    assert len(set(texts)) > 300
    assert set("".join(texts)) == set("ABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    words = {word for text in texts for word in text.split()}
    assert {"RUBOUT", "HUNDRED", "NINETEEN", "OH"} <= words


def test_numbers_have_their_names():
    named = {number: " ".join(grammar._below_hundred(number)) for number in (7, 10, 19, 20, 45)}
    assert named == {7: "SEVEN", 10: "TEN", 19: "NINETEEN", 20: "TWENTY", 45: "FORTY FIVE"}
    days = {day: " ".join(grammar._day(day)) for day in (1, 12, 20, 21, 30, 31)}
    expected = ["FIRST", "TWELFTH", "TWENTIETH", "TWENTY FIRST", "THIRTIETH", "THIRTY FIRST"]
    assert [*days.values()] == expected


def test_what_is_said_depends_on_seed_and_number_only():
    assert synthesis.spoken_texts(3, seed=5) == synthesis.spoken_texts(7, seed=5)[:3]
    assert synthesis.spoken_texts(3, seed=5) != synthesis.spoken_texts(3, seed=6)


@needs_flite
def test_flite_says_a_text_once(tmp_path):
    texts = synthesis.spoken_texts(2, seed=1)
    paths = synthesis.speak_all(texts, tmp_path, threads=2)
    times = [path.stat().st_mtime_ns for path in paths]
    assert all(np.abs(read_audio(path)).max() > 0.01 for path in paths)
    assert synthesis.speak_all(texts, tmp_path) == paths
    assert [path.stat().st_mtime_ns for path in paths] == times
    assert sorted(tmp_path.iterdir()) == sorted(paths)


@needs_flite
def test_pitch_leaves_the_duration_and_speed_changes_it(tmp_path):
    def seconds(speed, pitch):
        text = synthesis.SpokenText("B A R SIXTY", "B A R SIXTY", "slt", speed, pitch)
        return len(read_audio(synthesis.speak(text, tmp_path))) / SAMPLE_RATE

    plain = seconds(1.0, 1.0)
    assert seconds(1.0, 1.2) == pytest.approx(plain, rel=0.05)
    assert seconds(1.3, 1.0) == pytest.approx(plain / 1.3, rel=0.1)


def test_without_flite_the_command_to_get_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(synthesis.shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match="apt-get install flite"):
        synthesis.speak(synthesis.spoken_texts(1, seed=0)[0], tmp_path)
