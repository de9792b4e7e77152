import html
import math

import numpy as np
import pytest
import tensorflow as tf
from matplotlib.figure import Figure

from attention_apps.applications import Caption, Compression, Summary, Transcript, Translation
from attention_apps.applications.outputs import (
    ConfidenceConfig,
    answer_fields,
    calibrated,
    clear_rows,
    token_probabilities,
)
from attention_apps.applications.recognition.transcript import SpokenWord, TranscriptPart
from attention_apps.training.config import read_config

B, T, V = 2, 3, 5


def test_probabilities_are_those_of_the_tokens_and_1_for_padding():
    logits = np.random.default_rng(0).normal(size=(B, T, V)).astype(np.float32)
    token_ids = np.array([[4, 2, 0], [3, 1, 2]])
    found = token_probabilities({"logits": tf.constant(logits), "token_ids": tf.constant(token_ids)}).numpy()
    expected = np.take_along_axis(tf.nn.softmax(logits).numpy(), token_ids[..., np.newaxis], 2)[..., 0]
    expected[0, 2] = 1
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_cleared_rows_hold_nothing_and_the_others_what_they_held():
    outputs = {
        "text": tf.constant([["a", "b"], ["c", "d"]]),
        "score": tf.constant([[-1.0, -2.0], [-3.0, -4.0]]),
        "unsure": tf.constant([True, True]),
        "confidence": tf.constant([0.5, 0.25]),
        "attention": tf.ones([2, 3, 4, 5]),
    }
    cleared = {name: array.numpy() for name, array in clear_rows(outputs, tf.constant([False, True])).items()}
    assert cleared["text"].tolist() == [[b"a", b"b"], [b"", b""]]
    assert cleared["score"].tolist() == [[-1, -2], [-np.inf, -np.inf]]
    assert cleared["unsure"].tolist() == [True, False]
    assert cleared["confidence"].tolist() == [0.5, 0]
    assert cleared["attention"][0].all()
    assert not cleared["attention"][1].any()


def test_hypotheses_are_pairs_of_text_and_score_and_tokens_end_with_the_text():
    attention = np.arange(8.0).reshape(4, 2)
    answer = answer_fields(
        {
            "text": np.array([b"gr\xc3\xbcn", b""], object),
            "score": np.float32([-0.5, -np.inf]),
            "tokens": np.array([b"a", b"\xc3", b"", b""], object),
            "attention": attention,
            "confidence": np.float32(0.25),
        }
    )
    assert (answer["alternatives"], answer["score"]) == ([("grün", -0.5), ("", -np.inf)], -0.5)
    assert answer["tokens"] == ["a", "\ufffd"]
    np.testing.assert_array_equal(answer["attention"], attention[:2])
    assert answer["confidence"] == 0.25


# With one item each, the raw confidence is its probability, and at least a billionth.
RAW = np.float32([0.0, 0.2, 0.5, 0.9, 1.0])


def confidence_of(config):
    return calibrated(tf.constant(RAW[:, np.newaxis]), tf.ones([len(RAW), 1]), config)


def test_without_a_calibration_the_confidence_is_the_raw_one():
    outputs = confidence_of(ConfidenceConfig())
    np.testing.assert_allclose(outputs["confidence"], RAW, rtol=3e-7, atol=1.1e-9)
    assert not outputs["unsure"].numpy().any()


def test_a_calibration_is_a_line_in_logits():
    confidence = confidence_of(ConfidenceConfig(slope=2.0, offset=-1.0))["confidence"].numpy()
    logit = 2 * math.log(0.2 / 0.8) - 1
    assert confidence[1] == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-5)
    assert confidence[2] == pytest.approx(1 / (1 + math.e), rel=1e-5)


@pytest.mark.parametrize("config", [ConfidenceConfig(), ConfidenceConfig(3.0, 2.0), ConfidenceConfig(0.1, -5.0)])
def test_a_confidence_is_a_number_from_0_to_1_and_keeps_the_order(config):
    confidence = confidence_of(config)["confidence"].numpy()
    assert np.isfinite(confidence).all()
    assert 0 <= confidence.min() < confidence.max() <= 1
    assert (np.diff(confidence) > 0).all()


def test_an_answer_below_the_threshold_is_unsure():
    outputs = confidence_of(ConfidenceConfig(threshold=0.5))
    assert outputs["unsure"].numpy().tolist() == [True, True, False, False, False]
    halved = confidence_of(ConfidenceConfig(slope=1.0, offset=-3.0, threshold=0.5))
    assert halved["unsure"].numpy().tolist() == [True, True, True, True, False]


def test_a_geometric_mean_is_over_the_items_that_count():
    probabilities = np.float32([[0.5, 0.25, 0.9], [0.7, 0, 0], [0.3, 0.3, 0.3], [0.4, 0.0, 1.0]])
    counts = np.array([[True, True, False], [True, False, False], [False] * 3, [True] * 3])
    means = calibrated(probabilities, counts, ConfidenceConfig())["confidence"].numpy()
    np.testing.assert_allclose(means[:3], [np.sqrt(0.125), 0.7, 0], rtol=1e-5)
    assert 0 < means[3] < 1e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slope": -1.0}, "`slope` must be between 0 and 100"),
        ({"offset": 101.0}, "`offset` must be between -100 and 100"),
        ({"threshold": 1.5}, "`threshold` must be between 0 and 1. Received: threshold=1.5"),
    ],
)
def test_values_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        read_config(ConfidenceConfig, changes)


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
        assert repr(cls(error="no\nfile", source="x")) == rf"{cls.__name__}(error='no\nfile')"


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
    assert type(result)(error="no file", source="x")._repr_html_() is None
