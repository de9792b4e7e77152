import itertools

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
    [("", "first line"), ("n-gram counts\n1 2\n1 x\n", "Line 3"), ("n-gram counts\n1 9\n", "tokens from 0 to 6")],
)
def test_a_bad_text_form_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        NgramModel.from_text(text, V)


def test_an_order_below_1_is_refused():
    with pytest.raises(ValueError, match="`order` must be at least 1. Received: order=0"):
        NgramModel.fit(TEXTS, V, 0)


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
