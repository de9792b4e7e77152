import numpy as np
import pytest

from attention_apps.decoding.options import DecodingOptions
from attention_apps.decoding.prefix import forced_at, forced_tokens


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
