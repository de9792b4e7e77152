"""Benchmarks find an application's verb and have inputs of each kind."""

import importlib
import io
from pathlib import Path

import PIL.Image
import pytest
import soundfile

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def presets(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("presets")


def test_the_verb_is_found(presets):
    class Translator:
        def translate(self, texts):
            return texts

    assert presets.find_verb(Translator()) == "translate"
    assert presets.verb_of(Translator())("a") == "a"


def test_files_are_read_in_order(presets, tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name)
    assert presets.read_inputs("texts", [tmp_path / "b", tmp_path / "a"]) == [b"b", b"a"]


def test_inputs_are_made_up_without_files(presets):
    (photo,), (recording,) = presets.read_inputs("photos", []), presets.read_inputs("recordings", [])
    assert PIL.Image.open(io.BytesIO(photo)).size == (640, 480)
    assert soundfile.info(io.BytesIO(recording)).duration == 3
    assert all(len(text.split()) > 10 for text in presets.read_inputs("texts", []))
