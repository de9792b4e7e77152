import numpy as np
import pytest
from keras import ops

from attention_apps.layers import recurrent_attention
from attention_apps.layers.coverage_attention import CoverageAttention, LocationSensitiveAttention
from attention_apps.layers.recurrent_attention import convolve, recurrent_attention_weights, unroll_filters
from attention_apps.layers.sequence_ops import masked_softmax, softmax_gradient
from tests.layers.contract import assert_close, call, check_compiled, check_dynamic_shapes, example
from tests.layers.differentiate import gradients_of

BATCH, TARGET, SOURCE, FEATURES, UNITS, WIDTH = 5, 4, 7, 3, 11, 5
MASK = np.arange(SOURCE) < np.array([[7], [4], [1], [0], [6]])


def inputs(with_filters):
    generator = np.random.default_rng(0)
    features = FEATURES if with_filters else 1
    shapes = [(BATCH, TARGET, UNITS), (BATCH, SOURCE, UNITS), (BATCH, SOURCE), (features, UNITS), (UNITS,)]
    shapes += [(WIDTH, FEATURES)] if with_filters else []
    return [generator.normal(size=shape).astype("float32") for shape in shapes]


def ours(query, keys, state, feature_kernel, score_kernel, filters=None):
    return recurrent_attention_weights(
        query,
        keys,
        state,
        ops.convert_to_tensor(MASK),
        None if filters is None else unroll_filters(filters),
        feature_kernel,
        score_kernel,
        lambda scores, state, mask: masked_softmax(scores, mask),
        lambda scores, weights, upstream: softmax_gradient(weights, upstream),
        adds_up=filters is None,
    )


def plain(query, keys, state, feature_kernel, score_kernel, filters=None):
    """One step after the other, with gradients left to the backend."""
    steps = []
    for position in range(TARGET):
        features = ops.expand_dims(state, 2) if filters is None else convolve(state, unroll_filters(filters))
        hidden = ops.tanh(query[:, position, None] + keys + ops.matmul(features, feature_kernel))
        weights = masked_softmax(ops.sum(hidden * score_kernel, axis=-1), ops.convert_to_tensor(MASK))
        state = state + weights if filters is None else weights
        steps.append(weights)
    return ops.stack(steps, axis=1)


# A row of 7 sources and 11 units has 77 elements: all rows at once, two at a time and one left, one by one.
@pytest.mark.parametrize("chunk_size", [1000, 160, 50])
@pytest.mark.parametrize("with_filters", [True, False])
def test_weights_and_gradients_are_those_of_plain_steps(monkeypatch, chunk_size, with_filters):
    monkeypatch.setattr(recurrent_attention, "_CHUNK_SIZE", chunk_size)
    arrays = inputs(with_filters)
    assert_close(ours(*map(ops.convert_to_tensor, arrays)), plain(*map(ops.convert_to_tensor, arrays)))
    found = gradients_of(lambda *x: ops.sum(ops.sin(5 * ours(*x))), *arrays)
    assert_close(found, gradients_of(lambda *x: ops.sum(ops.sin(5 * plain(*x))), *arrays))


@pytest.mark.parametrize(
    "options", [{}, {"inverse_temperature": 2.0}, {"smoothing": True, "inverse_temperature": 2.0}, {"top_k": 3}]
)
def test_gradients_are_the_slopes_of_the_weights(options):
    layer = LocationSensitiveAttention(UNITS, filters=2, kernel_size=3, **options)
    query, value, mask = example(query_dim=4)
    call(layer, query, value, mask)
    direction = np.random.default_rng(1).normal(size=query.shape).astype("float32")

    def loss(query):
        return ops.sum(ops.sin(3 * call(layer, query, value, mask)[1]))

    (gradient,) = gradients_of(loss, query)
    slope = (float(loss(query + 1e-2 * direction)) - float(loss(query - 1e-2 * direction))) / 2e-2
    np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("check", [check_dynamic_shapes, check_compiled])
@pytest.mark.parametrize(
    "make_layer", [lambda: CoverageAttention(UNITS), lambda: LocationSensitiveAttention(UNITS, kernel_size=3)]
)
def test_chunks_work_in_graphs(monkeypatch, check, make_layer):
    monkeypatch.setattr(recurrent_attention, "_CHUNK_SIZE", 60)
    check(make_layer, query_dim=4)


@pytest.mark.parametrize("width", [1, 4, 5, 40])
@pytest.mark.parametrize("length", [1, 31, 32, 70])
def test_convolve_is_a_convolution_with_zeros_around_the_signal(width, length):
    generator = np.random.default_rng(0)
    signal, filters = generator.normal(size=(2, length)), generator.normal(size=(width, 3))
    padded = np.pad(signal, ((0, 0), ((width - 1) // 2, width // 2)))
    segments = np.lib.stride_tricks.sliding_window_view(padded, width, axis=1)  # (B, length, width)
    unrolled = unroll_filters(ops.convert_to_tensor(filters, "float32"))
    assert_close(convolve(ops.convert_to_tensor(signal, "float32"), unrolled), segments @ filters)
