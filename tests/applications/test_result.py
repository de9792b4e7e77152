"""Results of all tasks: a short `repr`, a figure and a page with or without a file, and what a notebook shows."""

import html

import numpy as np
import pytest
from matplotlib.figure import Figure

from attention_apps.applications import Caption, Compression, Summary, Transcript, Translation
from attention_apps.applications.recognition.transcript import SpokenWord, TranscriptPart

LONG = "word " * 40
PIXELS = np.full((30, 40, 3), 90, np.uint8)
PART = TranscriptPart(
    0.0, 1.0, -1.0, ["A"], [(LONG, -1.0)], np.ones((1, 9)), [SpokenWord("A", 0.1, 0.3, 0.5)], 0.5, np.ones((9, 4))
)
RESULTS = [
    Caption("a\ndog", -0.5, ["a", "dog"], [("a\ndog", -0.5)], np.full((2, 2, 2), 0.25), 0.875, True, pixels=PIXELS),
    Transcript([PART]),
    Summary.verbatim(LONG, LONG.split(), LONG),
    Compression.verbatim("Stop", ["Stop"], "Stop"),
    Translation(Summary.verbatim("Halt", ["Halt"], None).lines, ["Stop"], separators=[""]),
]
TASKS = pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)


@TASKS
def test_a_repr_fits_one_line(result):
    assert "\n" not in repr(result)
    assert len(repr(result)) <= 120
    assert repr(result).startswith(f"{type(result).__name__}('")


def test_a_repr_has_text_score_and_confidence_or_the_error():
    assert repr(RESULTS[0]) == r"Caption('a\ndog', score=-0.5, confidence=0.88, unsure)"
    assert repr(RESULTS[3]) == "Compression('Stop', score=0, confidence=1.00)"
    for cls in (Caption, Transcript, Summary, Compression, Translation):
        assert repr(cls.failed("x", "no\nfile")) == rf"{cls.__name__}(error='no\nfile')"


@TASKS
def test_a_figure_is_returned_and_saved_where_there_is_a_path(result, tmp_path):
    assert isinstance(result.plot(), Figure)
    assert list(tmp_path.iterdir()) == []
    assert isinstance(result.plot(tmp_path / "a.png"), Figure)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@TASKS
def test_a_page_is_returned_and_written_where_there_is_a_path(result, tmp_path):
    page = result.to_html()
    assert page.startswith("<!DOCTYPE html>")
    assert result.to_html(tmp_path / "a.html") == page == (tmp_path / "a.html").read_text(encoding="utf-8")


@TASKS
def test_a_notebook_shows_the_page_and_nothing_for_a_failure(result):
    shown = result._repr_html_()
    assert shown in result.to_html() or html.unescape(shown.split('"')[1]) == result.to_html()
    assert type(result).failed("x", "no file")._repr_html_() is None
