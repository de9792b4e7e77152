import math

import numpy as np
import pytest

from attention_apps.decoding.options import DecodingOptions
from attention_apps.decoding.penalties import best_future_scores, coverage_scores, penalize_length


def test_gnmt_and_average_penalties_follow_their_formulas():
    lengths = np.array([1, 4, 7], "int32")
    totals = np.array([-1.0, -2.0, -3.0], "float32")
    gnmt = penalize_length(totals, lengths, DecodingOptions(length_penalty=0.6))
    np.testing.assert_allclose(gnmt, totals / ((5 + lengths) / 6) ** 0.6, rtol=1e-6)
    average = penalize_length(totals, lengths, DecodingOptions(length_penalty=1.0, length_penalty_kind="average"))
    np.testing.assert_allclose(average, totals / lengths, rtol=1e-6)


def test_coverage_is_penalised_where_it_is_below_one_and_padding_is_not():
    state = {"coverage": np.array([[0.5, 1.7, 0.25, 0.0], [1.0, 2.0, 0.0, 0.0]], "float32")}
    found = np.array(coverage_scores(state, DecodingOptions(coverage_penalty=0.2)))
    np.testing.assert_allclose(found, [0.2 * (math.log(0.5) + math.log(0.25)), 0.0], rtol=1e-6)


def test_a_coverage_penalty_needs_a_coverage():
    with pytest.raises(
        ValueError, match=r'needs an entry "coverage" in the state. Received: state with \[\'hidden\'\]'
    ):
        coverage_scores({"hidden": np.zeros((2, 3))}, DecodingOptions(coverage_penalty=0.2))
    assert coverage_scores({}, DecodingOptions()) is None


@pytest.mark.parametrize("kind", ["gnmt", "average"])
@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.7, 2.0])
@pytest.mark.parametrize("gain", [-0.3, 0.0, 0.8])
def test_the_bound_is_the_best_over_all_lengths_that_are_left(kind, alpha, gain):
    options = DecodingOptions(max_length=9, min_length=5, length_penalty=alpha, length_penalty_kind=kind)
    totals, written = np.array([-3.0, 0.5, -math.inf], "float32"), 3
    found = np.array(best_future_scores(totals, written, gain, options))

    def score(total, length):
        base = (5 + length) / 6 if kind == "gnmt" else length
        return (total + gain * (length - written)) / base**alpha

    expected = [max(score(float(total), length) for length in range(5, 10)) for total in totals]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_without_a_bound_on_the_gain_any_live_hypothesis_can_win():
    found = best_future_scores(np.array([-9.0, -math.inf], "float32"), 1, math.inf, DecodingOptions())
    assert np.array(found).tolist() == [math.inf, -math.inf]
