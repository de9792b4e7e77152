import math

import keras
import numpy as np
import pytest

from attention_apps.decoding.candidates import best_candidates


def expected(scores, offsets, count):
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
    for found, wanted in zip(best_candidates(scores, offsets, count), expected(scores, offsets, count)):
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
    for part, wanted in zip(found, expected(scores, offsets, 4)):
        np.testing.assert_allclose(part, wanted, rtol=1e-6)
