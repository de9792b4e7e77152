import math

import numpy as np
import pytest

from attention_apps.decoding.next_tokens import score_next_tokens
from attention_apps.decoding.options import DecodingOptions

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


def test_half_precision_logits_are_normalised_in_float32():
    scored = score_next_tokens(LOGITS.astype("float16"), None, np.zeros((2, 20), "int32"), 0, DecodingOptions())
    np.testing.assert_allclose(np.array(scored.logits - scored.normalizer), LOG_PROBS, atol=2e-3)
    assert math.isclose(float(np.exp(np.array(scored.logits - scored.normalizer)).sum()), 2.0, rel_tol=1e-6)
