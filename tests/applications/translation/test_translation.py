import numpy as np
import pytest

from attention_apps.applications import SummaryLine, Translation


def make_line(text, start, other="x"):
    tokens = text.split()
    weights = np.eye(len(tokens), dtype=np.float32)
    alternatives = [(text, -1.0), (other, -3.0)]
    return SummaryLine(-1.0, tokens, alternatives, weights, [False] * len(tokens), (start, start + len(tokens)), 0.5)


@pytest.fixture
def translation():
    lines = [make_line("eins zwei", 0), make_line("drei", 2), make_line("vier fünf", 3, "")]
    return Translation(
        lines,
        ["one", "two", "three", "four", "five"],
        threshold=0.6,
        source="text",
        separators=[" ", "\n\n", " "],
    )


def test_sentences_are_joined_with_spaces_and_the_line_breaks_of_the_text(translation):
    assert translation.text == "eins zwei drei\n\nvier fünf"
    assert translation.alternatives == [("eins zwei drei\n\nvier fünf", -1.0), ("x x", -3.0)]


def test_it_says_how_it_came_about(translation):
    assert translation.tokens == ["eins", "zwei", "drei", "vier", "fünf"]
    np.testing.assert_array_equal(translation.attention, np.eye(5))
    assert (translation.score, translation.confidence, translation.unsure) == (-1.0, 0.5, True)
    assert translation.was_read_whole


def test_a_blank_text_has_no_translation():
    blank = Translation([], [], threshold=0.5, source="")
    assert (blank.text, blank.alternatives, blank.tokens, blank.unsure) == ("", [], [], False)


def test_a_failure_has_an_error_and_no_text():
    failed = Translation(error="It is no text", source=5)
    assert (failed.text, failed.error, failed.source) == ("", "It is no text", 5)


def test_it_is_drawn_and_written_as_a_page(translation, tmp_path):
    translation.plot(tmp_path / "picture.svg")
    translation.to_html(tmp_path / "page.html")
    assert "<svg" in (tmp_path / "picture.svg").read_text()
    assert "fünf" in (tmp_path / "page.html").read_text(encoding="utf-8")
