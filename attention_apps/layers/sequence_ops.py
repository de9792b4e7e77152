"""Operations on sequences that the layers share: masks and the masked softmax, and two kinds of loops.

Masks are boolean; `True` means real. Padding gets exactly zero weight, even if a whole row is padding. `scan_time` runs
a recurrence over time, `chunked_loop` bounds the memory of a large computation.
"""

from functools import partial

import keras
from keras import ops, tree

from attention_apps.constants import VERY_NEGATIVE


def masked_softmax(scores, mask=None):
    """Softmax over the last axis that gives masked positions a weight of exactly zero.

    A row without any real position gets zero weights and zero gradients. A plain softmax would spread its weight over
    the padding. Half-precision scores are normalized in float32.

    Args:
        scores: `(..., source)`.
        mask: Boolean, broadcastable to `scores`, or `None`.
    """
    dtype = keras.backend.standardize_dtype(scores.dtype)
    scores = ops.cast(scores, "float32") if dtype in ("float16", "bfloat16") else scores
    if mask is None:
        return ops.cast(ops.softmax(scores, axis=-1), dtype)
    mask = ops.cast(mask, "bool")
    weights = ops.softmax(ops.where(mask, scores, ops.cast(VERY_NEGATIVE, scores.dtype)), axis=-1)
    return ops.cast(ops.where(mask, weights, ops.zeros_like(weights)), dtype)


def softmax_gradient(weights, upstream):
    """The gradient of `masked_softmax` by the scores, from its weights and the gradient by the weights."""
    return weights * (upstream - ops.sum(weights * upstream, axis=-1, keepdims=True))


def over_targets(value_mask):
    """A source mask `(batch, source)` that broadcasts over target positions; `None` stays `None`."""
    return None if value_mask is None else ops.expand_dims(value_mask, 1)  # (B, 1, S)


def causal_mask(target_length, source_length=None):
    """`(target, source)`: a target position sees the source positions up to itself; the last one sees all."""
    source_length = target_length if source_length is None else source_length
    offset = source_length - target_length
    return ops.expand_dims(ops.arange(target_length) + offset, 1) >= ops.expand_dims(ops.arange(source_length), 0)


def length_mask(lengths, max_length):
    """`(batch, max_length)`: `True` before each row's length."""
    return ops.expand_dims(ops.arange(max_length), 0) < ops.expand_dims(ops.cast(lengths, "int32"), 1)


def scan_time(step, inputs, state):
    """Call `step(inputs_t, state)` for each time step and stack the outputs.

    Args:
        step: Takes the inputs of one time step and the state, and returns `(outputs_t, state)`: nested structures of
            tensors, each with a leading batch axis. The state keeps its structure and shapes.
        inputs: Nested structure of `(batch, time, ...)`.
        state: Nested structure of tensors.

    Returns:
        `(outputs, state)`, the outputs as `(batch, time, ...)`.
    """
    length = ops.shape(tree.flatten(inputs)[0])[1]
    if isinstance(length, int) and length == 1:
        outputs, state = step(tree.map_structure(lambda x: x[:, 0], inputs), state)
        return tree.map_structure(lambda x: ops.expand_dims(x, 1), outputs), state
    in_tensorflow_graph = False
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        in_tensorflow_graph = not tf.executing_eagerly()
    inputs = tree.map_structure(lambda x: ops.swapaxes(x, 0, 1), inputs)  # (T, B, ...)
    if keras.backend.backend() == "jax":
        state, outputs = ops.scan(lambda state, inputs_t: step(inputs_t, state)[::-1], state, inputs)
    elif in_tensorflow_graph:
        outputs, state = _tensorflow_scan(step, inputs, state, length)
    else:
        collected = []
        for index in range(int(length)):
            outputs, state = step(tree.map_structure(lambda x, index=index: x[index], inputs), state)
            collected.append(outputs)
        outputs = tree.map_structure(lambda *steps: ops.stack(steps), *collected)
    return tree.map_structure(lambda x: ops.swapaxes(x, 0, 1), outputs), state


def chunked_loop(step, length, size, num_outputs, dtype, state=()):
    """Process `length` positions in chunks of `size`; the last chunk may be shorter.

    It has no gradient of its own. Use it inside a custom gradient.

    Args:
        step: Takes a function `chunk(array, axis=0)`, which cuts the current chunk out of an array, and the state.
            Returns a tuple of outputs, whose first axis is the chunk, and the state.
        length: Number of positions.
        size: Positions per chunk; may exceed `length`.
        num_outputs: Number of output tensors of `step`.
        dtype: Their dtype.
        state: Tuple of tensors.

    Returns:
        `(outputs, state)`, the outputs of all chunks joined along the first axis.
    """
    size = min(size, length) if isinstance(size, int) and isinstance(length, int) else ops.minimum(size, length)
    count = length // size
    if keras.backend.backend() == "tensorflow":
        outputs, state = _tensorflow_chunks(step, count, size, num_outputs, dtype, state)
    else:
        state, outputs = ops.scan(
            lambda state, index: step(partial(_cut, index * size, size), state)[::-1], state, ops.arange(count)
        )
    outputs = tuple(ops.reshape(output, (-1, *ops.shape(output)[2:])) for output in outputs)
    rest = length - count * size
    if isinstance(rest, int) and rest == 0:
        return outputs, state
    last, state = step(partial(_cut, count * size, rest), state)
    return tuple(ops.concatenate(parts, axis=0) for parts in zip(outputs, last, strict=True)), state


def _tensorflow_scan(step, inputs, state, length):
    import tensorflow as tf

    def body(index, state_flat, arrays):
        inputs_t = tree.pack_sequence_as(inputs, [source.read(index) for source in sources])
        outputs, new_state = step(inputs_t, tree.pack_sequence_as(state, list(state_flat)))
        arrays = [array.write(index, tensor) for array, tensor in zip(arrays, tree.flatten(outputs), strict=True)]
        return index + 1, _with_shapes_of(state_flat, tree.flatten(new_state)), arrays

    sources = [tf.TensorArray(x.dtype, size=length, element_shape=x.shape[1:]).unstack(x) for x in tree.flatten(inputs)]
    specification = _output_specification(step, inputs, state)
    arrays = [tf.TensorArray(s.dtype, size=length, element_shape=s.shape) for s in tree.flatten(specification)]
    _, state_flat, arrays = tf.while_loop(
        lambda index, *_: index < length,
        body,
        (tf.constant(0), [tf.convert_to_tensor(x) for x in tree.flatten(state)], arrays),
        maximum_iterations=length,
        parallel_iterations=1,  # running steps ahead costs memory, most of all in the backward pass
    )
    outputs = tree.pack_sequence_as(specification, [array.stack() for array in arrays])
    return outputs, tree.pack_sequence_as(state, list(state_flat))


def _output_specification(step, inputs, state):
    """Structure, shapes and dtypes of the outputs of `step`, from a trace that is never run."""
    import tensorflow as tf

    def spec(x):
        return tf.TensorSpec(x.shape, x.dtype)

    first = tree.map_structure(lambda x: tf.TensorSpec(x.shape[1:], x.dtype), inputs)
    state = tree.map_structure(lambda x: spec(tf.convert_to_tensor(x)), state)
    traced = tf.function(step, autograph=False).get_concrete_function(first, state)
    return tree.map_structure(spec, traced.structured_outputs[0])


def _cut(start, size, array, axis=0):
    starts, sizes = [0] * len(array.shape), list(ops.shape(array))
    starts[axis], sizes[axis] = start, size
    return ops.slice(array, starts, sizes)


def _tensorflow_chunks(step, count, size, num_outputs, dtype, state):
    import tensorflow as tf

    def body(index, state, arrays):
        outputs, new_state = step(partial(_cut, index * size, size), state)
        arrays = [array.write(index, x) for array, x in zip(arrays, outputs, strict=True)]
        return index + 1, tuple(_with_shapes_of(state, new_state)), arrays

    arrays = [tf.TensorArray(dtype, size=count) for _ in range(num_outputs)]
    _, state, arrays = tf.while_loop(
        lambda index, *_: index < count,
        body,
        (0, state, arrays),
        maximum_iterations=count,
        parallel_iterations=1,  # one chunk in memory at a time
    )
    return [array.stack() for array in arrays], state


def _with_shapes_of(references, tensors):
    """Restore static sizes that a step lost: the state of a `while_loop` must keep them."""
    import tensorflow as tf

    return [tf.ensure_shape(tf.convert_to_tensor(t), r.shape) for t, r in zip(tensors, references, strict=True)]
