import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.layers.time_loop import time_loop

B, T, D = 2, 5, 3
RNG = np.random.default_rng(0)
KERNEL = RNG.normal(size=(D, D)).astype("float32") * 0.3
SEQUENCE = RNG.normal(size=(B, T, D)).astype("float32")

tensorflow_only = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a TensorFlow graph")


def recur(sequence):
    def step(inputs, state):
        hidden = ops.tanh(ops.matmul(state["hidden"], KERNEL) + inputs["x"])
        return {"hidden": hidden, "sum": ops.sum(hidden, axis=-1)}, {"hidden": hidden}

    return time_loop(step, {"x": sequence}, {"hidden": ops.zeros((ops.shape(sequence)[0], D))})


def expected():
    hidden, steps = np.zeros((B, D), "float32"), []
    for index in range(T):
        hidden = np.tanh(hidden @ KERNEL + SEQUENCE[:, index])
        steps.append(hidden)
    return np.stack(steps, axis=1)


def test_it_goes_through_time_in_order_and_stacks_the_outputs():
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
