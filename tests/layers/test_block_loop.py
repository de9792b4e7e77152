import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.layers.block_loop import block_loop
from tests.layers.contract import assert_close

LENGTH, DIM = 7, 3


def running_sums(array, size):
    """The array doubled, and its sum, block by block."""

    def step(block, state):
        part = block(array)
        return (2 * part, part[:, 0]), (state[0] + ops.sum(part, axis=0),)

    return block_loop(
        step, ops.shape(array)[0], size, num_outputs=2, dtype=array.dtype, state=(ops.zeros_like(array[0]),)
    )


def example():
    return np.arange(LENGTH * DIM, dtype="float32").reshape(LENGTH, DIM)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
def test_blocks_and_the_rest_are_joined_in_order(size):
    array = example()
    outputs, state = running_sums(ops.convert_to_tensor(array), size)
    assert_close((outputs, state), ((2 * array, array[:, 0]), (array.sum(0),)))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="only TensorFlow has unknown lengths")
@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_length_may_be_unknown_when_traced(jit_compile):
    import tensorflow as tf

    traced = tf.function(
        running_sums, jit_compile=jit_compile, input_signature=[tf.TensorSpec((None, DIM)), tf.TensorSpec((), "int32")]
    )
    array = example()
    for length, size in ((LENGTH, 2), (4, 5)):
        outputs, state = traced(array[:length], size)
        assert_close((outputs, state), ((2 * array[:length], array[:length, 0]), (array[:length].sum(0),)))


def test_a_block_may_be_cut_along_any_axis():
    array = ops.convert_to_tensor(example())

    def step(block, state):
        return (ops.transpose(block(array, axis=1)),), state

    (joined,), _ = block_loop(step, DIM, 2, num_outputs=1, dtype=array.dtype)
    assert_close(joined, example().T)
