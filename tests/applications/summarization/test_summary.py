import tracemalloc

import numpy as np
import pytest

from attention_apps.applications.summarization.summary import Summary, SummaryLine

SOURCE = ["Alice", "met", "Bob", ".", "Zork", "slept", "."]


def line(tokens, passage, scores=(-0.5, -0.75), confidence=0.5):
    start, end = passage
    alternatives = [(" ".join(tokens), scores[0]), (tokens[0], scores[1])]
    attention = np.full((len(tokens), end - start), 1 / (end - start), np.float32)
    return SummaryLine(scores[0], tokens, alternatives, attention, [False] * len(tokens), passage, confidence)


@pytest.fixture
def summary():
    lines = [line(["Alice", "meets"], (0, 4)), line(["Zork"], (4, 7), (-1.0, -1.5), 0.25)]
    return Summary(lines, SOURCE, threshold=0.3)


def test_lines_are_joined(summary):
    assert summary.text == "Alice meets\nZork"
    assert summary.tokens == ["Alice", "meets", "Zork"]
    assert summary.copied == [False] * 3
    assert summary.alternatives == [("Alice meets\nZork", -0.75), ("Alice\nZork", -1.125)]
    assert summary.score == -0.75
    assert summary.passages == [(0, 4), (4, 7)]
    assert summary.was_read_whole


def test_each_line_looks_at_its_own_passage(summary):
    expected = np.zeros((3, 7))
    expected[:2, :4] = 1 / 4
    expected[2, 4:] = 1 / 3
    np.testing.assert_allclose(summary.attention, expected, rtol=1e-6)


def test_the_least_sure_line_counts(summary):
    assert summary.confidence == 0.25
    assert summary.unsure
    assert not Summary(summary.lines, SOURCE, threshold=0.2).unsure


def test_a_part_that_was_not_read_is_known(summary):
    assert not Summary(summary.lines[:1], SOURCE).was_read_whole


def test_a_short_text_is_its_own_summary():
    summary = Summary.verbatim("Alice met", ["Alice", "met"], "Alice  met")
    assert (summary.text, summary.tokens, summary.source) == ("Alice met", ["Alice", "met"], "Alice  met")
    assert (summary.confidence, summary.unsure, summary.score) == (1.0, False, 0.0)
    np.testing.assert_array_equal(summary.attention, np.eye(2))
    assert summary.was_read_whole


@pytest.mark.parametrize("summary", [Summary.verbatim("", [], " "), Summary(error="no text", source=5)])
def test_what_has_no_text_has_no_lines(summary):
    assert (summary.text, summary.tokens, summary.passages) == ("", [], [])
    assert summary.score == float("-inf")
    assert summary.confidence == 0
    assert not summary.unsure
    assert summary.attention.shape == (0, 0)


def test_an_error_is_kept():
    assert Summary(error="no text", source=5).error == "no text"
    assert Summary.verbatim("", [], "").error is None


def test_a_verbatim_summary_takes_memory_in_proportion_to_its_text(tmp_path):
    tokens = ["'"] * 200_000
    tracemalloc.start()
    summary = Summary.verbatim("'" * len(tokens), tokens, None)
    assert summary.attention is None
    summary.to_html(tmp_path / "a.html")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1000 * len(tokens)
    assert summary.tokens == tokens


def test_the_attention_of_a_copied_text_is_the_identity_at_every_length():
    for length in (256, 257, 300):
        tokens = ["x"] * length
        np.testing.assert_array_equal(Summary.verbatim("x", tokens, None).attention, np.eye(length))


def test_the_attention_of_a_very_long_text_is_left_to_its_lines():
    line = SummaryLine(0.0, ["a"] * 100, [("a", 0.0)], np.ones((100, 200), np.float32), [False] * 100, (0, 200))
    assert Summary([line] * 200, ["x"] * 40_000).attention is None
    assert Summary([line], ["x"] * 40_000).attention.shape == (100, 40_000)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_summary_is_drawn(summary, ending, tmp_path):
    summary.plot(tmp_path / f"summary.{ending}")
    assert (tmp_path / f"summary.{ending}").stat().st_size > 1000


def test_a_page_has_all_words(summary, tmp_path):
    summary.to_html(tmp_path / "summary.html")
    page = (tmp_path / "summary.html").read_text(encoding="utf-8")
    assert all(f">{token}</span>" in page for token in (*summary.tokens, *SOURCE))
