import math

import numpy as np

from attention_apps.decoding.result import make_result


def test_a_hypothesis_that_does_not_exist_is_empty():
    """The second hypothesis has a score of -inf, whatever was left in its other entries."""
    token_ids = np.array([[[5, 2, 0], [4, 4, 4]]], "int32")
    scores, log_probs = np.array([[-1.0, -math.inf]], "float32"), np.array([[-2.0, -3.0]], "float32")
    result = make_result(token_ids, scores, log_probs, np.array([[2, 3]], "int32"), np.array([[True, True]]))
    assert np.array(result.token_ids).tolist() == [[[5, 2, 0], [0, 0, 0]]]
    assert np.array(result.scores).tolist() == [[-1.0, -math.inf]]
    assert np.array(result.log_probs).tolist() == [[-2.0, -math.inf]]
    assert np.array(result.lengths).tolist() == [[2, 0]]
    assert np.array(result.finished).tolist() == [[True, False]]


def test_an_unfinished_hypothesis_is_kept():
    arrays = np.array([[[5, 4]]]), np.array([[-1.0]]), np.array([[-2.0]]), np.array([[2]]), np.array([[False]])
    for part, expected in zip(make_result(*arrays), arrays):
        np.testing.assert_array_equal(part, expected)
