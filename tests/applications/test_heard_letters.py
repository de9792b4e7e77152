import numpy as np
import pytest

from attention_apps.applications.heard_letters import HeardLetters

PROBABILITIES = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.4, 0.4], [0.1, 0.1, 0.8]])


def test_confidence_is_what_attention_and_ctc_agree_on():
    ids, attention = np.array([1, 2]), np.eye(2, 4)
    heard = HeardLetters.of(["A", "B"], ids, attention, np.log([0.5, 0.2]), np.log(PROBABILITIES))
    assert heard.spans[0, 0] == 1
    assert heard.spans[1, 1] == 4
    np.testing.assert_allclose(heard.confidences, [np.sqrt(0.5 * 0.8), np.sqrt(0.2 * 0.8)], rtol=1e-5)
    assert heard.confidence == pytest.approx(np.sqrt(heard.confidences.prod()))


def test_without_letters_there_is_no_confidence():
    heard = HeardLetters.of([], np.zeros(0, int), np.zeros((0, 4)), np.zeros(0), np.log(PROBABILITIES))
    assert heard.confidence == 0
    assert heard.spans.shape == (0, 2)


def test_more_letters_than_positions_are_where_attention_looked():
    ids, attention = np.array([1, 2, 1, 2, 1]), np.eye(4)[[0, 1, 1, 2, 3]]
    heard = HeardLetters.of(list("ABABA"), ids, attention, np.zeros(5), np.log(PROBABILITIES))
    assert heard.spans.tolist() == [[0, 1], [1, 2], [1, 2], [2, 3], [3, 4]]


def test_what_is_forgotten_keeps_its_confidence_only():
    heard = HeardLetters.of(["A"], np.array([1]), np.eye(1, 4), np.log([0.5]), np.log(PROBABILITIES))
    forgotten = heard.forgotten()
    assert (forgotten.letters, len(forgotten.attention), len(forgotten.spans)) == ([], 0, 0)
    assert forgotten.confidence == heard.confidence
