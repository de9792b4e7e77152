import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.layers.sequence_ops import (
    causal_mask,
    chunked_loop,
    length_mask,
    masked_softmax,
    over_targets,
    scan_time,
)
from tests.layers.contract import assert_close

B, T, D = 2, 5, 3
LENGTH, DIM = 7, 3  # of chunked_loop
RNG = np.random.default_rng(0)
KERNEL = RNG.normal(size=(D, D)).astype("float32") * 0.3
SEQUENCE = RNG.normal(size=(B, T, D)).astype("float32")

tensorflow_only = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a TensorFlow graph")


def recur(sequence):
    def step(inputs, state):
        hidden = ops.tanh(ops.matmul(state["hidden"], KERNEL) + inputs["x"])
        return {"hidden": hidden, "sum": ops.sum(hidden, axis=-1)}, {"hidden": hidden}

    return scan_time(step, {"x": sequence}, {"hidden": ops.zeros((ops.shape(sequence)[0], D))})


def expected():
    hidden, steps = np.zeros((B, D), "float32"), []
    for index in range(T):
        hidden = np.tanh(hidden @ KERNEL + SEQUENCE[:, index])
        steps.append(hidden)
    return np.stack(steps, axis=1)


def test_scan_time_goes_in_order_and_stacks_the_outputs():
    outputs, state = recur(ops.convert_to_tensor(SEQUENCE))
    np.testing.assert_allclose(ops.convert_to_numpy(outputs["hidden"]), expected(), atol=1e-6)
    np.testing.assert_allclose(ops.convert_to_numpy(outputs["sum"]), expected().sum(-1), atol=1e-6)
    np.testing.assert_allclose(ops.convert_to_numpy(state["hidden"]), expected()[:, -1], atol=1e-6)


def test_a_single_step_is_like_the_first_of_many():
    outputs, _ = recur(ops.convert_to_tensor(SEQUENCE[:, :1]))
    np.testing.assert_allclose(ops.convert_to_numpy(outputs["hidden"]), expected()[:, :1], atol=1e-6)


@tensorflow_only
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("shape", [(B, T, D), (None, None, D)])
def test_outputs_and_gradients_in_a_graph_are_those_of_eager_mode(jit_compile, shape):
    import tensorflow as tf

    def gradient(sequence):
        with tf.GradientTape() as tape:
            tape.watch(sequence)
            outputs, _ = recur(sequence)
            loss = tf.reduce_sum(tf.sin(outputs["hidden"])) + tf.reduce_sum(outputs["sum"] ** 2)
        return outputs["hidden"], tape.gradient(loss, sequence)

    graph = tf.function(gradient, input_signature=[tf.TensorSpec(shape)], jit_compile=jit_compile)
    for ours, eager in zip(graph(tf.constant(SEQUENCE)), gradient(tf.constant(SEQUENCE)), strict=True):
        np.testing.assert_allclose(ours, eager, atol=1e-5)


def running_sums(array, size):
    """The array doubled, and its sum, chunk by chunk."""

    def step(chunk, state):
        part = chunk(array)
        return (2 * part, part[:, 0]), (state[0] + ops.sum(part, axis=0),)

    return chunked_loop(
        step, ops.shape(array)[0], size, num_outputs=2, dtype=array.dtype, state=(ops.zeros_like(array[0]),)
    )


def positions():
    return np.arange(LENGTH * DIM, dtype="float32").reshape(LENGTH, DIM)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
def test_chunks_and_the_rest_are_joined_in_order(size):
    array = positions()
    outputs, state = running_sums(ops.convert_to_tensor(array), size)
    assert_close((outputs, state), ((2 * array, array[:, 0]), (array.sum(0),)))


@tensorflow_only
@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_length_may_be_unknown_when_traced(jit_compile):
    import tensorflow as tf

    traced = tf.function(
        running_sums, jit_compile=jit_compile, input_signature=[tf.TensorSpec((None, DIM)), tf.TensorSpec((), "int32")]
    )
    array = positions()
    for length, size in ((LENGTH, 2), (4, 5)):
        outputs, state = traced(array[:length], size)
        assert_close((outputs, state), ((2 * array[:length], array[:length, 0]), (array[:length].sum(0),)))


def test_a_chunk_may_be_cut_along_any_axis():
    array = ops.convert_to_tensor(positions())

    def step(chunk, state):
        return (ops.transpose(chunk(array, axis=1)),), state

    (joined,), _ = chunked_loop(step, DIM, 2, num_outputs=1, dtype=array.dtype)
    assert_close(joined, positions().T)


def test_softmax_without_a_mask_is_the_plain_one():
    scores = RNG.normal(size=(2, 3, 5)).astype("float32")
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(ops.convert_to_numpy(masked_softmax(scores)), expected, atol=1e-6)


def test_masked_positions_get_no_weight_and_the_rest_sums_to_one():
    scores = RNG.normal(size=(2, 3, 5)).astype("float32")
    mask = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]], bool)
    weights = ops.convert_to_numpy(masked_softmax(scores, over_targets(mask)))
    assert (weights[0][:, [2, 4]] == 0).all()
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)


def test_a_row_without_real_positions_gets_no_weight_at_all():
    weights = masked_softmax(RNG.normal(size=(2, 5)).astype("float32"), np.array([[False] * 5, [True] * 5]))
    np.testing.assert_allclose(ops.convert_to_numpy(ops.sum(weights, -1)), [0, 1], atol=1e-6)


def test_half_precision_is_normalized_in_float32():
    scores = ops.cast(np.full((1, 3000), 8.0), "float16")
    weights = masked_softmax(scores, np.ones((1, 3000), bool))
    assert "float16" in str(weights.dtype)
    np.testing.assert_allclose(ops.convert_to_numpy(ops.sum(ops.cast(weights, "float32"))), 1, atol=1e-2)


def test_the_last_target_of_a_causal_mask_sees_every_source():
    assert ops.convert_to_numpy(causal_mask(2, 4)).tolist() == [[True, True, True, False], [True] * 4]
    assert ops.convert_to_numpy(causal_mask(3)).tolist() == np.tril(np.ones((3, 3), bool)).tolist()


def test_length_mask_is_true_before_the_length():
    assert ops.convert_to_numpy(length_mask([2, 0], 3)).tolist() == [[True, True, False], [False] * 3]


def test_no_source_mask_stays_none():
    assert over_targets(None) is None
