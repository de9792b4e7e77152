import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.layers import additive_attention
from attention_apps.layers.additive_attention import AdditiveAttention
from tests.layers.contract import (
    ATTENTION_CHECKS,
    assert_close,
    call,
    check_compiled,
    check_dynamic_shapes,
    check_mixed_precision,
    example,
    gradients,
)
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


@pytest.fixture
def _no_row_is_short(monkeypatch):
    monkeypatch.setattr(additive_attention, "_SHORT_ROW", 0)


# A row of 3 targets, 7 sources and 11 units has 231 elements.
@pytest.mark.usefixtures("_no_row_is_short")
@pytest.mark.parametrize("chunk_size", [2000, 500, 231, 100, 20])
def test_chunks_change_neither_scores_nor_gradients(monkeypatch, chunk_size):
    layer, inputs = AdditiveAttention(UNITS), example(query_dim=4, batch=5, source=7)
    chunked_scores = additive_attention.additive_scores
    monkeypatch.setattr(additive_attention, "additive_scores", plain_scores)
    expected = call(layer, *inputs)[:2], gradients(layer, *inputs)
    monkeypatch.setattr(additive_attention, "additive_scores", chunked_scores)
    monkeypatch.setattr(additive_attention, "_CHUNK_SIZE", chunk_size)
    assert_close((call(layer, *inputs)[:2], gradients(layer, *inputs)), expected)


@pytest.mark.usefixtures("_no_row_is_short")
@pytest.mark.parametrize("check", [check_dynamic_shapes, check_compiled, check_mixed_precision])
@pytest.mark.parametrize("chunk_size", [231, 100])
def test_chunks_work_in_graphs(monkeypatch, chunk_size, check):
    monkeypatch.setattr(additive_attention, "_CHUNK_SIZE", chunk_size)
    check(lambda: AdditiveAttention(UNITS), query_dim=4)


@pytest.mark.usefixtures("_no_row_is_short")
def test_the_hidden_layer_is_never_larger_than_a_chunk(monkeypatch):
    sizes, hidden = [], additive_attention._hidden

    def recorded(query, keys):
        result = hidden(query, keys)
        sizes.append(int(np.prod(result.shape)))
        return result

    monkeypatch.setattr(additive_attention, "_CHUNK_SIZE", 100)
    monkeypatch.setattr(additive_attention, "_hidden", recorded)
    gradients(AdditiveAttention(UNITS), *example(query_dim=4))
    assert 0 < max(sizes) <= 100


def plain_scores(query, keys, kernel, single_step=False):
    hidden = ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(keys, 1))
    return ops.sum(hidden * kernel, axis=-1)


@pytest.mark.usefixtures("_no_row_is_short")
@pytest.mark.parametrize("short_row", [0, 165])
def test_the_hidden_layer_is_computed_again_unless_a_row_is_short(monkeypatch, short_row):
    calls, hidden = [], additive_attention._hidden
    layer, inputs = AdditiveAttention(UNITS), example(query_dim=4)
    call(layer, *inputs)
    monkeypatch.setattr(additive_attention, "_hidden", lambda *x: calls.append(x) or hidden(*x))
    monkeypatch.setattr(additive_attention, "_SHORT_ROW", short_row)
    gradients(layer, *inputs)
    assert len(calls) == (1 if short_row else 2)


@pytest.mark.usefixtures("_no_row_is_short")
@pytest.mark.parametrize("target", [1, 3])
def test_a_single_step_is_computed_in_one_piece_with_the_same_result(monkeypatch, target):
    sizes, hidden = [], additive_attention._hidden
    query, value, mask = example(query_dim=4, target=target)
    layer = AdditiveAttention(UNITS)
    expected = call(layer, query, value, mask)[:2]
    monkeypatch.setattr(additive_attention, "_CHUNK_SIZE", 10)
    monkeypatch.setattr(additive_attention, "_hidden", lambda *x: sizes.append(x[0].shape[0]) or hidden(*x))
    assert_close(call(layer, query, value, mask, single_step=target > 1)[:2], expected)
    assert sizes == [len(query)]
