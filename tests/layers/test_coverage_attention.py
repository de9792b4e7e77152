import numpy as np
import pytest
from keras import ops

from attention_apps.layers.coverage_attention import CoverageAttention, coverage_loss
from tests.layers.contract import ATTENTION_CHECKS, assert_close, call, example, with_policy
from tests.layers.differentiate import gradients_of
from tests.layers.reference import dense, softmax

UNITS = 11


@pytest.mark.parametrize("check", ATTENTION_CHECKS)
def test_it_keeps_the_contract(check):
    check(lambda: CoverageAttention(UNITS), query_dim=4)


def test_it_is_the_formula_of_the_paper():
    layer, (query, value, mask) = CoverageAttention(UNITS), example(query_dim=4)
    call(layer, query, value, mask)
    layer.key_dense.bias.assign(np.linspace(-1, 1, UNITS))
    context, weights, state = call(layer, query, value, mask)
    coverage_kernel, score_kernel = map(ops.convert_to_numpy, (layer.coverage_kernel, layer.score_kernel))
    coverage, expected = np.zeros(mask.shape), []
    for position in range(query.shape[1]):
        projected = dense(layer.query_dense, query[:, position])[:, None] + dense(layer.key_dense, value)
        hidden = np.tanh(projected + coverage[..., None] * coverage_kernel)
        expected.append(softmax(hidden @ score_kernel, mask))
        coverage = coverage + expected[-1]
    expected = np.stack(expected, axis=1)
    assert_close((context, weights, state["coverage"]), (expected @ value, expected, coverage))


def test_coverage_adds_up_in_float32_step_by_step_too():
    layer = with_policy("mixed_bfloat16", lambda: CoverageAttention(UNITS))
    query, value, _ = example()
    state = {"coverage": ops.full((2, 5), 256.0)}
    _, _, state = call(layer, query, value, state=state)
    assert_close(ops.sum(state["coverage"], axis=1), np.full(2, 5 * 256 + query.shape[1]))


def test_the_coverage_loss_is_what_is_attended_to_again():
    weights = np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 4)).astype("float32")
    expected = np.zeros((2, 4))
    for position in range(4):
        expected[:, position] = np.minimum(weights[:, position], weights[:, :position].sum(1)).sum(-1)
    assert_close(coverage_loss(ops.convert_to_tensor(weights)), expected)
    mask = np.array([[True, True, True, False], [True, False, False, False]])
    assert_close(coverage_loss(ops.convert_to_tensor(weights), ops.convert_to_tensor(mask)), expected * mask)


def test_the_coverage_loss_is_zero_without_repetition_and_has_finite_gradients():
    weights = np.eye(3, dtype="float32")[None]
    assert_close(coverage_loss(ops.convert_to_tensor(weights)), np.zeros((1, 3)))
    (gradient,) = gradients_of(lambda x: ops.sum(coverage_loss(x)), weights)
    assert np.all(np.isfinite(gradient))


def test_units_must_be_positive():
    with pytest.raises(ValueError, match="`units` must be a positive integer. Received: units=0"):
        CoverageAttention(0)
