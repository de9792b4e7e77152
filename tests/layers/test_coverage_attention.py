import numpy as np
import pytest
from keras import ops

from attention_apps.layers.coverage_attention import CoverageAttention, LocationSensitiveAttention, coverage_loss
from tests.layers.contract import (
    ATTENTION_CHECKS,
    assert_close,
    call,
    check_compiled,
    check_config,
    check_dynamic_shapes,
    check_fully_masked_row,
    check_keras_round_trip,
    check_masked_positions,
    check_stepwise,
    example,
    with_policy,
)
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


OPTIONS = {"filters": 2, "kernel_size": 4, "inverse_temperature": 1.5, "top_k": 3, "window": 2, "smoothing": True}


def make_layer(**options):
    return LocationSensitiveAttention(UNITS, **{"filters": 2, "kernel_size": 3, **options})


@pytest.mark.parametrize("check", ATTENTION_CHECKS)
def test_location_sensitive_attention_keeps_the_contract(check):
    check(make_layer, query_dim=4)


@pytest.mark.parametrize(
    "check",
    [
        check_config,
        check_keras_round_trip,
        check_dynamic_shapes,
        check_compiled,
        check_masked_positions,
        check_fully_masked_row,
        check_stepwise,
    ],
)
def test_it_keeps_the_contract_with_every_option(check):
    check(lambda: make_layer(**OPTIONS), query_dim=4)


def scores_of(layer, query, value, previous):
    """Of one target position, after eq. 8 and 9 of the paper."""
    filters, location_kernel, score_kernel = (
        ops.convert_to_numpy(x) for x in (layer.location_filters, layer.location_kernel, layer.score_kernel)
    )
    width = len(filters)
    padded = np.pad(previous, ((0, 0), ((width - 1) // 2, width // 2)))
    features = np.lib.stride_tricks.sliding_window_view(padded, width, axis=1) @ filters
    projected = dense(layer.query_dense, query)[:, None] + dense(layer.key_dense, value)
    return np.tanh(projected + features @ location_kernel) @ score_kernel


def sharpest(scores, mask, count):
    least = np.sort(np.where(mask, scores, -np.inf), axis=-1)[:, -count, None]
    return mask & (scores >= least)


def around_median(previous, mask, window):
    allowed = np.zeros_like(mask)
    for row, weights in enumerate(previous):
        median = int(np.argmax(np.cumsum(weights) >= weights.sum() / 2))
        allowed[row, max(0, median - window) : median + window] = True
    return mask & allowed


def smooth(scores, mask, previous):
    weights = np.where(mask, 1 / (1 + np.exp(-scores)), 0)
    return weights / weights.sum(-1, keepdims=True)


NORMALIZATIONS = [
    ({}, lambda scores, mask, previous: softmax(scores, mask)),
    ({"kernel_size": 4}, lambda scores, mask, previous: softmax(scores, mask)),
    ({"inverse_temperature": 2.5}, lambda scores, mask, previous: softmax(2.5 * scores, mask)),
    ({"top_k": 2}, lambda scores, mask, previous: softmax(scores, sharpest(scores, mask, 2))),
    ({"window": 2}, lambda scores, mask, previous: softmax(scores, around_median(previous, mask, 2))),
    ({"smoothing": True}, smooth),
]


@pytest.mark.parametrize(("options", "normalize"), NORMALIZATIONS, ids=[str(options) for options, _ in NORMALIZATIONS])
def test_location_sensitive_attention_is_the_formula_of_the_paper(options, normalize):
    layer, (query, value, mask) = make_layer(**options), example(query_dim=4)
    call(layer, query, value, mask)
    layer.key_dense.bias.assign(np.linspace(-1, 1, UNITS))
    context, weights, state = call(layer, query, value, mask)
    previous, expected = np.zeros(mask.shape), []
    for position in range(query.shape[1]):
        previous = normalize(scores_of(layer, query[:, position], value, previous), mask, previous)
        expected.append(previous)
    expected = np.stack(expected, axis=1)
    assert_close((context, weights, state["weights"]), (expected @ value, expected, previous))


def test_top_k_may_exceed_the_source():
    layer, inputs = make_layer(top_k=50), example(query_dim=4)
    plain = make_layer()
    call(plain, *inputs), call(layer, *inputs)
    layer.set_weights(plain.get_weights())
    assert_close(call(layer, *inputs)[:2], call(plain, *inputs)[:2])


@pytest.mark.parametrize("name", ["units", "filters", "kernel_size", "top_k", "window"])
def test_sizes_must_be_positive(name):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer. Received: {name}=0"):
        LocationSensitiveAttention(**{"units": UNITS, name: 0})


def test_the_inverse_temperature_must_be_positive():
    message = "`inverse_temperature` must be positive. Received: inverse_temperature=-1.0"
    with pytest.raises(ValueError, match=message):
        make_layer(inverse_temperature=-1.0)
