import dataclasses
import math

import numpy as np
import pytest

from attention_apps.decoding.options import DecodingOptions, make_result


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
        ({"no_repeat_ngram_size": -1}, "`no_repeat_ngram_size` must be at least 0. Received: no_repeat_ngram_size=-1"),
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
