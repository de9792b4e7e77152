import itertools
import time

import numpy as np
import pytest
from keras import ops

from attention_apps.decoding import DecodingOptions, beam_search
from attention_apps.decoding.ngram_model import NgramModel

TEXTS = [[4, 5, 6], [4, 5], [5, 4, 5, 6], [6]]
V = 7


def witten_bell(history, token, order):
    """The formula, straight from the counts."""
    history = history[len(history) - min(len(history), order - 1) :]
    shorter = 1 / V if not history else witten_bell(history[1:], token, len(history))
    followers = [
        tokens[place]
        for tokens in ((1, *text, 2) for text in TEXTS)
        for place in range(1, len(tokens))
        if place >= len(history) and tokens[place - len(history) : place] == tuple(history)
    ]
    if not followers:
        return shorter
    kinds = len(set(followers))
    return (followers.count(token) + kinds * shorter) / (len(followers) + kinds)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_probabilities_are_those_of_the_formula(order):
    model = NgramModel.fit(TEXTS, V, order)
    for text in ([], [4], [5, 6], [6, 6, 4, 5], [4, 5, 6, 4]):
        tokens = (1, *text, 2)
        expected = sum(np.log(witten_bell(tokens[:place], tokens[place], order)) for place in range(1, len(tokens)))
        assert model.log_prob(text) == pytest.approx(expected, abs=1e-5)


def test_each_row_is_a_distribution():
    model = NgramModel.fit(TEXTS, V, 3)
    np.testing.assert_allclose(np.exp(model.log_probs).sum(axis=1), 1, rtol=1e-5)


def test_the_text_form_is_the_same_model():
    model = NgramModel.fit(TEXTS, V, 3)
    again = NgramModel.from_text(model.to_text(), V)
    np.testing.assert_array_equal(again.log_probs, model.log_probs)
    np.testing.assert_array_equal(again.successors, model.successors)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "first line"),
        ("x" * 10**6, "first line"),
        ("n-gram counts\n1 2\n1 x\n", "Line 3"),
        ("n-gram counts\n1\n", "Line 2"),
        ("n-gram counts\n1 ²\n", "Line 2"),
        (f"n-gram counts\n{10**15} 4\n", "Line 2 of the n-gram counts must be two or more numbers of at most 15"),
        (f"n-gram counts\n{'x' * 500}\n", "Line 2"),
        ("n-gram counts\n1 9\n", "tokens from 0 to 6"),
        (f"n-gram counts\n1 {'4 ' * 33}\n", "histories of fewer than 32 tokens. Received: 32"),
    ],
)
def test_a_bad_text_form_is_refused_with_a_short_message(text, message):
    with pytest.raises(ValueError, match=message) as error:
        NgramModel.from_text(text, V)
    assert len(str(error.value)) < 160


def test_a_long_line_is_refused_at_once():
    """Its suffixes would all be looked up as histories, which takes time quadratic in its length."""
    text = "n-gram counts\n1 4 5\n1" + " 4" * 150_000 + "\n"
    start = time.perf_counter()
    with pytest.raises(ValueError, match="Line 3 of the n-gram counts must have at most 528 characters"):
        NgramModel.from_text(text, V)
    assert time.perf_counter() - start < 1


def test_a_small_file_cannot_ask_for_a_large_table():
    lines = "\n".join(f"1 {token} 4" for token in range(1000))
    with pytest.raises(ValueError, match="fewer than 1,000 histories for this vocabulary. Received: 1,000 histories"):
        NgramModel.from_text(f"n-gram counts\n{lines}\n", 100_000)


def test_histories_whose_suffixes_are_missing_use_the_longest_known_one():
    model = NgramModel({(4, 5, 6): {4: 3}, (6,): {5: 1}}, V)
    assert model.log_probs.shape == (3, V)
    expected = (3 + np.exp(model.log_probs[1, 4])) / (3 + 1)
    assert np.exp(model.log_probs[2, 4]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("order", "limit"), [(0, "at least 1"), (33, "at most 32")])
def test_an_order_out_of_range_is_refused(order, limit):
    with pytest.raises(ValueError, match=f"`order` must be {limit}. Received: order={order}"):
        NgramModel.fit(TEXTS, V, order)


def test_a_search_with_it_finds_the_text_that_it_likes_best():
    model = NgramModel.fit(TEXTS, V, 3)
    options = DecodingOptions(beam_size=40, max_length=4, num_best=3, banned_tokens=(0, 1, 3))

    def step(token, state):
        return ops.zeros((ops.shape(token)[0], V)), state

    state = {"nothing": ops.zeros((2, 1))}
    result = beam_search(step, state, options, scorers=[model.scorer(2, 2.0)])
    texts = [text for size in range(4) for text in itertools.product((4, 5, 6), repeat=size)]
    flat = -np.log(V)
    scores = sorted((2 * model.log_prob(text) + flat * (len(text) + 1) for text in texts), reverse=True)
    np.testing.assert_allclose(np.asarray(result.scores), [scores[:3]] * 2, rtol=1e-4)
