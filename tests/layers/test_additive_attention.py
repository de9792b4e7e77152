import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.layers.additive_attention import AdditiveAttention
from tests.layers.contract import ATTENTION_CHECKS, assert_close, call, example
from tests.layers.reference import softmax

UNITS = 11


@pytest.mark.parametrize("check", ATTENTION_CHECKS)
def test_it_keeps_the_contract(check):
    check(lambda: AdditiveAttention(UNITS), query_dim=4)


def test_it_is_the_formula_of_the_paper():
    layer, (query, value, mask) = AdditiveAttention(UNITS), example(query_dim=4)
    context, weights, _ = call(layer, query, value, mask)
    query_kernel, key_kernel, score_kernel = (
        ops.convert_to_numpy(w) for w in (layer.query_dense.kernel, layer.key_dense.kernel, layer.score_kernel)
    )
    hidden = np.tanh((query @ query_kernel)[:, :, None] + (value @ key_kernel)[:, None])
    expected = softmax(hidden @ score_kernel, mask[:, None])
    assert_close((weights, context), (expected, expected @ value))


def test_keras_leaks_weight_into_padding_and_this_layer_does_not():
    query, value, mask = example()
    mask[0] = False
    for theirs in (keras.layers.Attention(), keras.layers.AdditiveAttention()):
        inputs = [ops.convert_to_tensor(query), ops.convert_to_tensor(value)]
        context, weights = theirs(inputs, mask=[None, ops.convert_to_tensor(mask)], return_attention_scores=True)
        assert_close(ops.convert_to_numpy(weights)[0], np.full((3, 5), 1 / 5))
        assert np.abs(ops.convert_to_numpy(context)[0]).max() > 0.01
    context, weights, _ = call(AdditiveAttention(UNITS), query, value, mask)
    assert not np.any(ops.convert_to_numpy(weights)[0])
    assert not np.any(ops.convert_to_numpy(context)[0])


def test_the_mask_that_keras_attaches_to_a_value_is_used():
    embedding, attention = keras.layers.Embedding(9, 7, mask_zero=True), AdditiveAttention(UNITS)
    value = embedding(np.array([[4, 3, 0], [5, 0, 0]]))
    _, weights, _ = attention(ops.ones((2, 4, 7)), value)
    assert_close(ops.sum(weights, axis=1) > 0, np.array([[1, 1, 0], [1, 0, 0]]))


def test_units_must_be_positive():
    with pytest.raises(ValueError, match="`units` must be a positive integer. Received: units=0"):
        AdditiveAttention(0)
