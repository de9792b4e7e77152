"""A loop over the positions of an axis, some at a time. It has no gradient of its own: for use in custom ones."""

import keras
from keras import ops


def block_loop(step, length, size, num_outputs, dtype, state=()):
    """Goes through `length` positions, `size` at a time and then the rest.

    Args:
        step: takes a function `block(array, axis=0)` that cuts the block's part out of an array, and the state;
            returns a tuple of outputs, in each of which the block is the first axis, and the state.
        length: number of positions.
        size: positions in a block; it may exceed `length`.
        num_outputs: number of tensors that `step` puts out.
        dtype: their dtype.
        state: tuple of tensors.

    Returns:
        `(outputs, state)`, the outputs of all blocks joined along the first axis.
    """
    size = min(size, length) if isinstance(size, int) and isinstance(length, int) else ops.minimum(size, length)
    count = length // size

    def whole_block(index, state):
        return step(_cut(index * size, size), state)

    loop = _tensorflow_loop if keras.backend.backend() == "tensorflow" else _loop
    outputs, state = loop(whole_block, count, num_outputs, dtype, state)
    outputs = tuple(ops.reshape(output, (-1, *ops.shape(output)[2:])) for output in outputs)
    rest = length - count * size
    if isinstance(rest, int) and rest == 0:
        return outputs, state
    last, state = step(_cut(count * size, rest), state)
    return tuple(ops.concatenate(parts, axis=0) for parts in zip(outputs, last, strict=True)), state


def _cut(start, size):
    def block(array, axis=0):
        starts, sizes = [0] * len(array.shape), list(ops.shape(array))
        starts[axis], sizes[axis] = start, size
        return ops.slice(array, starts, sizes)

    return block


def _loop(step, count, num_outputs, dtype, state):
    state, outputs = ops.scan(lambda state, index: step(index, state)[::-1], state, ops.arange(count))
    return outputs, state


def _tensorflow_loop(step, count, num_outputs, dtype, state):
    import tensorflow as tf

    def body(index, state, arrays):
        outputs, new_state = step(index, state)
        new_state = tuple(tf.ensure_shape(new, old.shape) for new, old in zip(new_state, state, strict=True))
        return index + 1, new_state, [array.write(index, x) for array, x in zip(arrays, outputs, strict=True)]

    arrays = [tf.TensorArray(dtype, size=count) for _ in range(num_outputs)]
    _, state, arrays = tf.while_loop(
        lambda index, *_: index < count,
        body,
        (0, state, arrays),
        maximum_iterations=count,
        parallel_iterations=1,  # one block in memory at a time
    )
    return [array.stack() for array in arrays], state
