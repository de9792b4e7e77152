"""One loop over time for everything that cannot be computed for all positions at once."""

import keras
from keras import ops, tree


def time_loop(step, inputs, state, length=None):
    """Calls `step(inputs_t, state)` for each time step and stacks what it puts out.

    Args:
        step: takes the inputs of one time step and the state, returns `(outputs_t, state)`; nested structures of
            tensors, each with a leading batch axis. The state keeps its structure and shapes.
        inputs: nested structure of `(batch, time, ...)`.
        state: nested structure of tensors.
        length: number of steps; by default the time axis of the inputs.

    Returns:
        `(outputs, state)`, the outputs as `(batch, time, ...)`.
    """
    flat = tree.flatten(inputs)
    length = ops.shape(flat[0])[1] if length is None else length
    if isinstance(length, int) and length == 1:
        outputs, state = step(tree.map_structure(lambda x: x[:, 0], inputs), state)
        return tree.map_structure(lambda x: ops.expand_dims(x, 1), outputs), state
    inputs = tree.map_structure(lambda x: ops.swapaxes(x, 0, 1), inputs)  # (T, B, ...)
    outputs, state = _loop()(step, inputs, state, length)
    return tree.map_structure(lambda x: ops.swapaxes(x, 0, 1), outputs), state


def _loop():
    if keras.backend.backend() == "jax":
        return _jax_loop
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return _python_loop if tf.executing_eagerly() else _tensorflow_loop
    return _python_loop


def _jax_loop(step, inputs, state, length):
    def body(carry, inputs_t):
        outputs, carry = step(inputs_t, carry)
        return carry, outputs

    state, outputs = ops.scan(body, state, inputs)
    return outputs, state


def _python_loop(step, inputs, state, length):
    collected = []
    for index in range(int(length)):
        outputs, state = step(tree.map_structure(lambda x, index=index: x[index], inputs), state)
        collected.append(outputs)
    return tree.map_structure(lambda *steps: ops.stack(steps), *collected), state


def _tensorflow_loop(step, inputs, state, length):
    import tensorflow as tf

    def read(arrays, index):
        return tree.pack_sequence_as(inputs, [array.read(index) for array in arrays])

    def body(index, state_flat, arrays):
        outputs, new_state = step(read(sources, index), tree.pack_sequence_as(state, list(state_flat)))
        arrays = [array.write(index, tensor) for array, tensor in zip(arrays, tree.flatten(outputs), strict=True)]
        return index + 1, _with_shapes_of(tree.flatten(new_state), state_flat), arrays

    sources = [tf.TensorArray(x.dtype, size=length, element_shape=x.shape[1:]).unstack(x) for x in tree.flatten(inputs)]
    specification = _output_specification(step, inputs, state)
    arrays = [tf.TensorArray(s.dtype, size=length, element_shape=s.shape) for s in tree.flatten(specification)]
    _, state_flat, arrays = tf.while_loop(
        lambda index, *_: index < length,
        body,
        (tf.constant(0), [tf.convert_to_tensor(x) for x in tree.flatten(state)], arrays),
        maximum_iterations=length,
        parallel_iterations=1,  # steps computed ahead of time cost memory, not least in the backward pass
    )
    outputs = tree.pack_sequence_as(specification, [array.stack() for array in arrays])
    return outputs, tree.pack_sequence_as(state, list(state_flat))


def _with_shapes_of(tensors, references):
    """A step may lose static sizes that it was given; a while loop wants them back."""
    import tensorflow as tf

    return [tf.ensure_shape(tf.convert_to_tensor(t), r.shape) for t, r in zip(tensors, references, strict=True)]


def _output_specification(step, inputs, state):
    """Structure, shapes and dtypes of what `step` puts out, traced without being run."""
    import tensorflow as tf

    def spec(x):
        return tf.TensorSpec(x.shape, x.dtype)

    first = tree.map_structure(lambda x: tf.TensorSpec(x.shape[1:], x.dtype), inputs)
    state = tree.map_structure(lambda x: spec(tf.convert_to_tensor(x)), state)
    traced = tf.function(step, autograph=False).get_concrete_function(first, state)
    return tree.map_structure(spec, traced.structured_outputs[0])
