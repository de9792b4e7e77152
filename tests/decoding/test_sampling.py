import itertools

import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.decoding.beam_search import beam_search
from attention_apps.decoding.options import DecodingOptions
from attention_apps.decoding.sampling import sample
from tests.decoding.fake_models import END, FakeModel, Hypothesis, expand, log_softmax

MODEL = FakeModel.random(5, vocabulary=6, spread=1.0)


def draw(options, number, items=(0,), **arguments):
    return sample(MODEL.step, MODEL.init_state(items), options, number, **arguments)


def fixed(probabilities):
    """A model that always has the same distribution."""
    logits = np.log(np.asarray(probabilities, "float32"))

    def step(token, state):
        return state["item"] + logits, state

    return step, {"item": np.zeros((1, 1), "float32")}


def assert_frequencies(tokens, probabilities):
    """Within four and a half standard deviations of what is expected, and none where nothing is."""
    counts = np.bincount(tokens, minlength=len(probabilities))
    deviations = np.sqrt(len(tokens) * probabilities * (1 - probabilities))
    assert (np.abs(counts - len(tokens) * probabilities) <= 4.5 * deviations + 1e-6).all()


def test_tokens_are_drawn_with_their_probabilities_at_each_step():
    options = DecodingOptions(max_length=2, temperature=0.8)
    result = draw(options, 4000, items=(0, 1), seed=3)
    assert tuple(result.token_ids.shape) == (2, 4000, 2)
    for item, tokens in enumerate(np.array(result.token_ids)):
        assert_frequencies(tokens[:, 0], np.exp(log_softmax(MODEL.after(item, ())[0] / 0.8)))
        after_three = tokens[tokens[:, 0] == 3]
        assert_frequencies(after_three[:, 1], np.exp(log_softmax(MODEL.after(item, (3,))[0] / 0.8)))


def test_a_large_vocabulary_is_drawn_with_its_probabilities():
    probabilities = np.random.default_rng(0).dirichlet(np.full(301, 0.05))
    probabilities[::3] = 0
    probabilities /= probabilities.sum()
    with np.errstate(divide="ignore"):
        step, state = fixed(probabilities)
    result = sample(step, state, DecodingOptions(max_length=1), 20000, seed=1)
    assert_frequencies(np.array(result.token_ids)[0, :, 0], probabilities)


@pytest.mark.parametrize("vocabulary", [20, 3000])
@pytest.mark.parametrize(("limits", "kept"), [({"top_k": 3}, 3), ({"top_p": 0.65}, 4), ({"top_k": 3, "top_p": 0.9}, 3)])
def test_top_k_and_top_p_never_leave_their_set(vocabulary, limits, kept):
    probabilities = np.full(vocabulary, 0.2 / (vocabulary - 5))
    likely = np.array([vocabulary - 1, 4, 0, 9, 7])
    probabilities[likely] = 0.26, 0.2, 0.15, 0.1, 0.09
    step, state = fixed(probabilities)
    result = sample(step, state, DecodingOptions(max_length=1), 3000, seed=2, **limits)
    expected = np.zeros(vocabulary)
    expected[likely[:kept]] = probabilities[likely[:kept]] / probabilities[likely[:kept]].sum()
    assert_frequencies(np.array(result.token_ids)[0, :, 0], expected)


def test_a_seed_gives_the_same_samples_and_a_generator_new_ones():
    options, generator = DecodingOptions(max_length=6), keras.random.SeedGenerator(3)
    first, again, other = (np.array(draw(options, 20, seed=seed).token_ids) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    one, two = (np.array(draw(options, 20, seed=generator).token_ids) for _ in range(2))
    assert not np.array_equal(one, two)


def test_samples_have_the_log_probabilities_and_scores_of_their_tokens():
    options = DecodingOptions(max_length=5, length_penalty=1.0, repetition_penalty=1.3, coverage_penalty=0.2)
    result = draw(options, 30, items=(0, 1), seed=4)
    token_ids, scores, log_probs, lengths, finished = (np.array(part) for part in result)
    for item, row in np.ndindex(2, 30):
        hypothesis = Hypothesis()
        for token in token_ids[item, row, : lengths[item, row]]:
            (hypothesis,) = (h for h in expand(MODEL, item, hypothesis, options) if h.tokens[-1] == token)
        np.testing.assert_allclose(log_probs[item, row], hypothesis.log_prob, rtol=1e-4)
        np.testing.assert_allclose(scores[item, row], hypothesis.score, rtol=1e-4)
        assert finished[item, row] == (END in hypothesis.tokens)
        assert not token_ids[item, row, lengths[item, row] :].any()
    assert 0 < finished.sum() < 60


def test_bans_hold_and_prefixes_are_kept():
    options = DecodingOptions(max_length=6, min_length=4, banned_tokens=(0, 5), no_repeat_ngram_size=2)
    result = draw(options, 60, items=(0, 1), seed=5, prefix=np.array([[5, 4], [3, 0]]))
    token_ids, lengths = np.array(result.token_ids), np.array(result.lengths)
    assert (token_ids[0, :, :2] == [5, 4]).all()
    assert (token_ids[1, :, 0] == 3).all()
    assert (lengths >= 4).all()
    for row, length in zip(token_ids.reshape(-1, 6), lengths.reshape(-1)):
        pairs = list(itertools.pairwise(row[:length]))
        assert len(set(pairs)) == len(pairs)
        assert not {0, 5} & set(row[1:length].tolist())


@pytest.mark.parametrize("limits", [{}, {"top_k": 2}, {"top_p": 0.5}])
def test_where_nothing_can_be_written_samples_are_empty(limits):
    result = draw(DecodingOptions(max_length=3, banned_tokens=tuple(range(6))), 2, seed=1, **limits)
    assert not np.array(result.lengths).any()
    assert not np.array(result.token_ids).any()


def test_the_one_most_likely_token_is_greedy_search():
    options = DecodingOptions(beam_size=1, max_length=6)
    greedy = beam_search(MODEL.step, MODEL.init_state(range(4)), options)
    for sampled, expected in zip(draw(options, 1, items=range(4), top_k=1, seed=0), greedy):
        np.testing.assert_allclose(np.array(sampled), np.array(expected), rtol=1e-6)


def test_samples_stay_the_same_in_a_graph_of_unknown_sizes():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("tf.function")
    import tensorflow as tf

    def run(items, coverage):
        state = {"item": items, "memory": {"code": items * 0}, "coverage": coverage}
        plain = sample(MODEL.step, state, DecodingOptions(max_length=4), 3, seed=7)
        limited = sample(MODEL.step, state, DecodingOptions(max_length=4), 3, top_k=9, top_p=0.8, seed=7)
        return plain, limited

    signature = [tf.TensorSpec((None,), tf.int32), tf.TensorSpec((None, None), tf.float32)]
    items, coverage = np.arange(2, dtype="int32"), np.zeros((2, 3), "float32")
    compiled, eager = tf.function(run, input_signature=signature)(items, coverage), run(items, coverage)
    for one, other in zip(compiled, eager):
        assert np.array_equal(one.token_ids, other.token_ids)
    jitted = tf.function(run, jit_compile=True)(items, coverage)
    assert tuple(jitted[0].token_ids.shape) == tuple(ops.shape(jitted[1].token_ids)) == (2, 3, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_samples": 0}, "`num_samples` must be at least 1. Received: num_samples=0"),
        ({"top_k": 0}, "`top_k` must be at least 1 or None. Received: top_k=0"),
        ({"top_p": 0.0}, "`top_p` must be above 0 and at most 1, or None. Received: top_p=0.0"),
        ({"top_p": 1.1}, "`top_p` must be above 0 and at most 1, or None. Received: top_p=1.1"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        sample(MODEL.step, MODEL.init_state([0]), DecodingOptions(), **arguments)
