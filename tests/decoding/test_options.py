import dataclasses
import math

import keras
import numpy as np
import pytest

from attention_apps.decoding.options import (
    DecodingOptions,
    best_candidates,
    best_future_scores,
    coverage_scores,
    forced_at,
    forced_tokens,
    make_result,
    penalize_length,
    score_next_tokens,
)


def test_options_are_frozen_and_hashable():
    options = DecodingOptions(banned_tokens=[0, 3], forced_prefix=[4])
    assert (options.banned_tokens, options.forced_prefix) == ((0, 3), (4,))
    assert hash(options) == hash(dataclasses.replace(options))
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.beam_size = 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beam_size": 0}, "`beam_size` must be at least 1. Received: beam_size=0"),
        ({"max_length": 0}, "`max_length` must be at least 1. Received: max_length=0"),
        ({"beam_size": 10**9}, "`beam_size` must be at most 1000. Received: beam_size=1000000000"),
        ({"max_length": 10**9}, "`max_length` must be at most 10000. Received: max_length=1000000000"),
        ({"min_length": 21}, "`min_length` must be between 0 and 20, `max_length`. Received: min_length=21"),
        ({"num_best": 6}, "`num_best` must be between 1 and 5, `beam_size`. Received: num_best=6"),
        ({"num_best": 0}, "`num_best` must be between 1 and 5, `beam_size`. Received: num_best=0"),
        (
            {"no_repeat_ngram_size": -1},
            "`no_repeat_ngram_size` must be between 0 and 100. Received: no_repeat_ngram_size=-1",
        ),
        (
            {"no_repeat_ngram_size": 10**6},
            "`no_repeat_ngram_size` must be between 0 and 100. Received: no_repeat_ngram_size=1000000",
        ),
        (
            {"length_penalty_kind": "wu"},
            '`length_penalty_kind` must be "gnmt" or "average". Received: length_penalty_kind=\'wu\'',
        ),
        ({"length_penalty": math.nan}, "`length_penalty` must be a finite number. Received: length_penalty=nan"),
        (
            {"coverage_penalty": -0.1},
            "`coverage_penalty` must be a finite number of at least 0. Received: coverage_penalty=-0.1",
        ),
        ({"temperature": 0.0}, "`temperature` must be a finite number above 0. Received: temperature=0.0"),
        (
            {"repetition_penalty": 0.0},
            "`repetition_penalty` must be a finite number above 0. Received: repetition_penalty=0.0",
        ),
        ({"start_token": -1}, "`start_token` must be a token id of at least 0. Received: start_token=-1"),
        ({"end_token": 0}, "`end_token` must be a token id of at least 1. Received: end_token=0"),
        ({"banned_tokens": (-1,)}, "`banned_tokens` must be token ids of at least 0. Received: banned_tokens=(-1,)"),
        ({"forced_prefix": (0,)}, "`forced_prefix` must be token ids of at least 1. Received: forced_prefix=(0,)"),
        (
            {"max_length": 1, "forced_prefix": (3, 4)},
            "`forced_prefix` must be no longer than 1, `max_length`. Received: forced_prefix=(3, 4)",
        ),
    ],
)
def test_a_wrong_option_is_named(arguments, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the whole message is compared)
        DecodingOptions(**arguments)
    assert str(error.value) == message


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


LOGITS = np.array([[0.5, -1.0, 2.0, 0.0, 1.0, -0.5], [1.0, 0.0, -2.0, 3.0, 0.5, 0.25]], "float32")
LOG_PROBS = LOGITS - np.log(np.exp(LOGITS).sum(axis=1, keepdims=True))


def allowed(history, scorers=None, **options):
    """What may be written after a history of equally long rows, as log-probabilities."""
    tokens = np.zeros((2, 7), "int32")
    tokens[:, : len(history[0])] = history
    options = DecodingOptions(max_length=7, **options)
    scored = score_next_tokens(LOGITS, scorers, tokens, len(history[0]), options)
    return np.array(scored.allowed - scored.normalizer)


def banned(history, **options):
    return [np.flatnonzero(np.isneginf(row)).tolist() for row in allowed(history, **options)]


def test_without_options_it_is_the_log_softmax():
    np.testing.assert_allclose(allowed([[], []]), LOG_PROBS, atol=1e-6)


def test_temperature_divides_the_logits():
    scaled = LOGITS / 0.5
    expected = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(allowed([[], []], temperature=0.5), expected, atol=1e-5)


@pytest.mark.parametrize("penalty", [1.3, 0.7])
def test_the_repetition_penalty_multiplies_the_log_probability_of_written_tokens(penalty):
    expected = LOG_PROBS.copy()
    expected[0, [3, 4]] *= penalty
    expected[1, [0, 5]] *= penalty
    found = allowed([[3, 4, 3], [5, 0, 5]], repetition_penalty=penalty)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(allowed([[], []], repetition_penalty=penalty), LOG_PROBS, atol=1e-6)


def test_scorers_are_added():
    scorers = np.arange(12, dtype="float32").reshape(2, 6)
    np.testing.assert_allclose(allowed([[], []], scorers=scorers), LOG_PROBS + scorers, atol=1e-5)


def test_an_ngram_is_not_written_twice():
    assert banned([[3, 4, 3], [3, 4, 5]], no_repeat_ngram_size=2) == [[4], []]
    assert banned([[3, 4, 3, 5, 3], [0, 0, 5, 0, 5]], no_repeat_ngram_size=2) == [[4, 5], [0]]
    assert banned([[3, 4, 5, 3, 4], [3, 4, 5, 4, 4]], no_repeat_ngram_size=3) == [[5], []]
    assert banned([[3, 4, 3], [5, 5, 5]], no_repeat_ngram_size=1) == [[3, 4], [5]]


def test_the_longest_ngrams_ban_what_would_repeat_them():
    history = np.array([[3, 4, 5] * 34] * 2, "int32")
    options = DecodingOptions(max_length=102, no_repeat_ngram_size=100)
    banned_ids = np.isneginf(score_next_tokens(LOGITS, None, history, 102, options).allowed)
    np.testing.assert_array_equal(banned_ids, [[False, False, False, True, False, False]] * 2)


def test_ngrams_longer_than_what_is_written_ban_nothing():
    assert banned([[], []], no_repeat_ngram_size=3) == [[], []]
    assert banned([[3, 3], [0, 0]], no_repeat_ngram_size=3) == [[], []]


def test_the_end_is_banned_before_the_minimum_length():
    assert banned([[3], [3]], min_length=3) == [[2], [2]]
    assert banned([[3, 3], [3, 3]], min_length=3) == [[], []]


def test_banned_tokens_are_never_allowed_and_leave_the_others_alone():
    assert banned([[], []], banned_tokens=(0, 3)) == [[0, 3], [0, 3]]
    found = allowed([[], []], banned_tokens=(0, 3))
    np.testing.assert_allclose(found[:, [1, 2, 4, 5]], LOG_PROBS[:, [1, 2, 4, 5]], atol=1e-6)


def test_forced_tokens_are_scored_before_the_bans():
    scored = score_next_tokens(LOGITS, None, np.zeros((2, 7), "int32"), 0, DecodingOptions(banned_tokens=(3,)))
    assert np.isneginf(np.array(scored.allowed)[:, 3]).all()
    np.testing.assert_allclose(np.array(scored.scores - scored.normalizer), LOG_PROBS, atol=1e-6)


@pytest.mark.parametrize("name", ["end_token", "banned_tokens", "forced_prefix"])
def test_a_token_outside_the_vocabulary_is_an_error(name):
    options = DecodingOptions(**{name: 6 if name == "end_token" else (6,)})
    with pytest.raises(ValueError, match=f"`{name}` must be below 6, the size of the vocabulary. Received: {name}="):
        score_next_tokens(LOGITS, None, np.zeros((2, 20), "int32"), 0, options)


def test_half_precision_logits_are_normalized_in_float32():
    scored = score_next_tokens(LOGITS.astype("float16"), None, np.zeros((2, 20), "int32"), 0, DecodingOptions())
    np.testing.assert_allclose(np.array(scored.logits - scored.normalizer), LOG_PROBS, atol=2e-3)
    assert math.isclose(float(np.exp(np.array(scored.logits - scored.normalizer)).sum()), 2.0, rel_tol=1e-6)


def largest_sums(scores, offsets, count):
    batch, beams = offsets.shape
    totals = (scores.reshape(batch, beams, -1) + offsets[..., None]).reshape(batch, -1)
    order = np.argsort(-totals, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(totals, order, 1), order // scores.shape[-1], order % scores.shape[-1]


@pytest.mark.parametrize("vocabulary", [3, 100, 1024, 1301])
@pytest.mark.parametrize("beams", [1, 5])
def test_candidates_are_the_largest_sums(vocabulary, beams):
    generator = np.random.default_rng(vocabulary + beams)
    scores = generator.normal(size=(2 * beams, vocabulary)).astype("float32")
    offsets = generator.normal(size=(2, beams)).astype("float32")
    count = min(7, vocabulary * beams)
    for found, wanted in zip(best_candidates(scores, offsets, count), largest_sums(scores, offsets, count)):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("vocabulary", [4, 2000])
def test_a_missing_hypothesis_has_no_candidates_even_if_its_scores_are_nan(vocabulary):
    scores = np.stack([np.arange(vocabulary), np.full(vocabulary, np.nan)]).astype("float32")
    offsets = np.array([[-0.5, -math.inf]], "float32")
    totals, beams, tokens = (np.array(part) for part in best_candidates(scores, offsets, 3))
    assert totals.tolist() == [[vocabulary - 1.5, vocabulary - 2.5, vocabulary - 3.5]]
    assert beams.tolist() == [[0, 0, 0]]
    assert tokens.tolist() == [[vocabulary - 1, vocabulary - 2, vocabulary - 3]]


def test_a_vocabulary_smaller_than_the_count_is_filled_up_with_dead_candidates():
    totals, _, tokens = best_candidates(np.array([[1.0, 3.0]], "float32"), np.zeros((1, 1), "float32"), 4)
    assert np.array(totals).tolist() == [[3.0, 1.0, -math.inf, -math.inf]]
    assert np.array(tokens).tolist() == [[1, 0, 0, 0]]


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="only TensorFlow has unknown sizes")
@pytest.mark.parametrize("vocabulary", [2, 40, 1301])
def test_the_vocabulary_may_be_unknown_until_the_graph_runs(vocabulary):
    import tensorflow as tf

    search = tf.function(lambda scores, offsets: tuple(best_candidates(scores, offsets, 4)))
    signature = tf.TensorSpec((None, None)), tf.TensorSpec((None, 3))
    scores = np.random.default_rng(0).normal(size=(6, vocabulary)).astype("float32")
    offsets = np.zeros((2, 3), "float32")
    found = search.get_concrete_function(*signature)(tf.constant(scores), tf.constant(offsets))
    for part, wanted in zip(found, largest_sums(scores, offsets, 4)):
        np.testing.assert_allclose(part, wanted, rtol=1e-6)


def test_the_prefix_of_the_options_is_for_all_items():
    forced = forced_tokens(None, 3, DecodingOptions(forced_prefix=(4, 5)))
    assert [np.array(forced_at(forced, position)).tolist() for position in range(4)] == [
        [4, 4, 4],
        [5, 5, 5],
        [0, 0, 0],
        [0, 0, 0],
    ]


def test_each_row_of_a_prefix_ends_with_its_first_zero():
    forced = forced_tokens(np.array([[4, 5, 6], [7, 0, 8], [0, 3, 3]]), 3, DecodingOptions())
    assert np.array(forced).tolist() == [[4, 5, 6, 0], [7, 0, 0, 0], [0, 0, 0, 0]]


def test_an_empty_prefix_forces_nothing():
    assert forced_tokens(None, 2, DecodingOptions()) is None
    forced = forced_tokens(np.zeros((2, 0), "int32"), 2, DecodingOptions())
    assert np.array(forced_at(forced, 0)).tolist() == [0, 0]


def test_two_prefixes_or_one_too_long_are_errors():
    with pytest.raises(ValueError, match=r"`prefix` must not be given together with `options\.forced_prefix`"):
        forced_tokens(np.ones((2, 1), "int32"), 2, DecodingOptions(forced_prefix=(4,)))
    with pytest.raises(ValueError, match=r"no longer than 2, `max_length`\. Received: shape \(2, 3\)"):
        forced_tokens(np.ones((2, 3), "int32"), 2, DecodingOptions(max_length=2))


def test_gnmt_and_average_penalties_follow_their_formulas():
    lengths = np.array([1, 4, 7], "int32")
    totals = np.array([-1.0, -2.0, -3.0], "float32")
    gnmt = penalize_length(totals, lengths, DecodingOptions(length_penalty=0.6))
    np.testing.assert_allclose(gnmt, totals / ((5 + lengths) / 6) ** 0.6, rtol=1e-6)
    average = penalize_length(totals, lengths, DecodingOptions(length_penalty=1.0, length_penalty_kind="average"))
    np.testing.assert_allclose(average, totals / lengths, rtol=1e-6)


def test_coverage_is_penalized_where_it_is_below_one_and_padding_is_not():
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
