import numpy as np
import pytest
from keras import ops

from attention_apps.layers import additive_attention, additive_scores
from attention_apps.layers.additive_attention import AdditiveAttention
from tests.layers.contract import (
    assert_close,
    call,
    check_compiled,
    check_dynamic_shapes,
    check_mixed_precision,
    example,
    gradients,
)

UNITS = 11


@pytest.fixture(autouse=True)
def _no_row_is_short(monkeypatch):
    monkeypatch.setattr(additive_scores, "_SHORT_ROW", 0)


# A row of 3 targets, 7 sources and 11 units has 231 elements.
@pytest.mark.parametrize("chunk_size", [2000, 500, 231, 100, 20])
def test_chunks_change_neither_scores_nor_gradients(monkeypatch, chunk_size):
    layer, inputs = AdditiveAttention(UNITS), example(query_dim=4, batch=5, source=7)
    monkeypatch.setattr(additive_attention, "additive_scores", plain_scores)
    expected = call(layer, *inputs)[:2], gradients(layer, *inputs)
    monkeypatch.setattr(additive_attention, "additive_scores", additive_scores.additive_scores)
    monkeypatch.setattr(additive_scores, "_CHUNK_SIZE", chunk_size)
    assert_close((call(layer, *inputs)[:2], gradients(layer, *inputs)), expected)


@pytest.mark.parametrize("check", [check_dynamic_shapes, check_compiled, check_mixed_precision])
@pytest.mark.parametrize("chunk_size", [231, 100])
def test_chunks_work_in_graphs(monkeypatch, chunk_size, check):
    monkeypatch.setattr(additive_scores, "_CHUNK_SIZE", chunk_size)
    check(lambda: AdditiveAttention(UNITS), query_dim=4)


def test_the_hidden_layer_is_never_larger_than_a_chunk(monkeypatch):
    sizes, hidden = [], additive_scores._hidden

    def recorded(query, keys):
        result = hidden(query, keys)
        sizes.append(int(np.prod(result.shape)))
        return result

    monkeypatch.setattr(additive_scores, "_CHUNK_SIZE", 100)
    monkeypatch.setattr(additive_scores, "_hidden", recorded)
    gradients(AdditiveAttention(UNITS), *example(query_dim=4))
    assert 0 < max(sizes) <= 100


def plain_scores(query, keys, kernel, single_step=False):
    hidden = ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(keys, 1))
    return ops.sum(hidden * kernel, axis=-1)


@pytest.mark.parametrize("short_row", [0, 165])
def test_the_hidden_layer_is_computed_again_unless_a_row_is_short(monkeypatch, short_row):
    calls, hidden = [], additive_scores._hidden
    layer, inputs = AdditiveAttention(UNITS), example(query_dim=4)
    call(layer, *inputs)
    monkeypatch.setattr(additive_scores, "_hidden", lambda *x: calls.append(x) or hidden(*x))
    monkeypatch.setattr(additive_scores, "_SHORT_ROW", short_row)
    gradients(layer, *inputs)
    assert len(calls) == (1 if short_row else 2)


@pytest.mark.parametrize("target", [1, 3])
def test_a_single_step_is_computed_in_one_piece_with_the_same_result(monkeypatch, target):
    sizes, hidden = [], additive_scores._hidden
    query, value, mask = example(query_dim=4, target=target)
    layer = AdditiveAttention(UNITS)
    expected = call(layer, query, value, mask)[:2]
    monkeypatch.setattr(additive_scores, "_CHUNK_SIZE", 10)
    monkeypatch.setattr(additive_scores, "_hidden", lambda *x: sizes.append(x[0].shape[0]) or hidden(*x))
    assert_close(call(layer, query, value, mask, single_step=target > 1)[:2], expected)
    assert sizes == [len(query)]
