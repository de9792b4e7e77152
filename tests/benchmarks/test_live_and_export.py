"""A live application and its export are timed on the same inputs, after their texts were compared."""

import importlib
import re
import types
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from tests.applications.summarizers import TEXT, WORDS, make_compressor

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def live_and_export(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("live_and_export")


def test_ratios_are_those_of_each_input(live_and_export):
    timing = live_and_export.Timing
    pairs = [
        {"live": timing((0.1, 0.3, 0.2), 0.3), "export": timing((0.1, 0.1, 0.1), 0.6)},
        {"live": timing((2.0, 2.0, 2.0), 6.0), "export": timing((3.0, 3.0, 3.0), 6.0)},
    ]
    figures = live_and_export.summarize(pairs)
    assert figures["inputs"] == 2
    assert figures["live ms"] == pytest.approx(1100)
    assert figures["export / live"] == pytest.approx(1.0)  # of 0.5 and 1.5
    assert figures["by CPU"] == pytest.approx(1.5)  # of 2 and 1


@pytest.mark.slow
def test_an_application_and_its_export_are_timed(live_and_export, capsys):
    inputs = [text.encode() for text in (TEXT, "Bob sees Paris by night.")]
    figures = live_and_export.measure(make_compressor(words=WORDS), inputs, repeats=2)
    assert figures["inputs"] == 2
    assert all(value > 0 for value in figures.values())
    live_and_export.print_table({"tiny": figures})
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["tiny", "2"]


def test_an_export_that_differs_is_not_timed(live_and_export, monkeypatch):
    class Application:
        def export(self, folder):
            return folder

        def caption(self, items):
            return [types.SimpleNamespace(text="a dog") for _ in items]

    class LoadedModel:
        inputs: ClassVar = {"serving_default": {"image_bytes": None}}

        def __init__(self, folder):
            pass

        def predict(self, inputs):
            return {"text": np.array([[b"a cat"]])}

    monkeypatch.setattr("attention_apps.serving.LoadedModel", LoadedModel)
    with pytest.raises(SystemExit, match=re.escape("differs from the application: ['a cat'] instead of ['a dog']")):
        live_and_export.measure(Application(), [b"photo"], repeats=1)
