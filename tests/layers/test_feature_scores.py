import numpy as np
import pytest
from keras import ops

from attention_apps.layers import feature_scores as module
from attention_apps.layers.coverage_attention import CoverageAttention
from attention_apps.layers.feature_scores import feature_scores
from tests.layers.contract import assert_close, check_compiled, check_dynamic_shapes
from tests.layers.differentiate import gradients_of

BATCH, SOURCE, FEATURES, UNITS = 5, 7, 3, 11


def inputs():
    generator = np.random.default_rng(0)
    shapes = ((BATCH, UNITS), (BATCH, SOURCE, UNITS), (BATCH, SOURCE, FEATURES), (FEATURES, UNITS), (UNITS,))
    return [generator.normal(size=shape).astype("float32") for shape in shapes]


def plain_scores(query, keys, features, feature_kernel, score_kernel):
    hidden = ops.tanh(ops.expand_dims(query, 1) + keys + ops.matmul(features, feature_kernel))
    return ops.sum(hidden * score_kernel, axis=-1)


# A row of 7 sources and 11 units has 77 elements: all rows at once, two at a time and one left, one by one.
@pytest.mark.parametrize("block_size", [1000, 160, 50])
def test_blocks_change_neither_scores_nor_gradients(monkeypatch, block_size):
    monkeypatch.setattr(module, "_BLOCK_SIZE", block_size)
    assert_close(feature_scores(*map(ops.convert_to_tensor, inputs())), plain_scores(*inputs()))
    found = gradients_of(lambda *x: ops.sum(ops.sin(feature_scores(*x))), *inputs())
    assert_close(found, gradients_of(lambda *x: ops.sum(ops.sin(plain_scores(*x))), *inputs()))


@pytest.mark.parametrize("check", [check_dynamic_shapes, check_compiled])
def test_blocks_work_in_graphs(monkeypatch, check):
    monkeypatch.setattr(module, "_BLOCK_SIZE", 60)
    check(lambda: CoverageAttention(UNITS), query_dim=4)
