"""LSTM and GRU over a whole sequence on TensorFlow, with explicit gradients.

The loops contain only what depends on the previous step: one product and a few element-wise operations. The caller
projects the inputs before the loop. In the backward pass, all factors that do not depend on the incoming gradient are
computed for all steps at once, and the gradient of the recurrent kernel is one product after the loop. Two directions
run in one loop, on an axis before the batch: `(T, B, ...)` or `(T, 2, B, ...)`.
"""

import tensorflow as tf


def sees_gpu():
    """Return whether TensorFlow sees a GPU, where Keras' own layers are faster."""
    return bool(tf.config.list_logical_devices("GPU"))


def lstm(inputs, recurrent_kernel, hidden, cell, mask=None):
    """Run an LSTM over projected inputs.

    Args:
        inputs: `(time, ..., batch, 4 * units)`, input projection plus bias, gates in the order of Keras: i, f, c, o.
        recurrent_kernel: `(..., units, 4 * units)`.
        hidden, cell: `(..., batch, units)`, the initial state.
        mask: Boolean `(time, ..., batch, 1)`, or `None`. A masked step keeps the state.

    Returns:
        All hidden states `(time, ..., batch, units)`, the last hidden state and the last cell state.
    """
    inputs, recurrent_kernel = _order_gates(inputs), _order_gates(recurrent_kernel)
    mask = None if mask is None else tf.cast(mask, inputs.dtype)

    @tf.custom_gradient
    def run(inputs, recurrent_kernel, hidden, cell):
        gates, cells, hiddens = _lstm_forward(inputs, recurrent_kernel, hidden, cell, mask)

        def gradient(hiddens_grad, last_hidden_grad, last_cell_grad):
            factors = _lstm_factors(gates, cells, _shifted(cells, cell), mask)
            return _lstm_backward(
                factors,
                recurrent_kernel,
                _shifted(hiddens, hidden),
                hiddens_grad,
                last_hidden_grad,
                last_cell_grad,
            )

        return (hiddens, hiddens[-1], cells[-1]), gradient

    return run(inputs, recurrent_kernel, hidden, cell)


def gru(inputs, recurrent_kernel, recurrent_bias, hidden, mask=None):
    """Run a GRU, with the reset gate applied after the product, over projected inputs.

    Args:
        inputs: `(time, ..., batch, 3 * units)`, input projection plus bias, gates in the order of Keras: z, r, h.
        recurrent_kernel: `(..., units, 3 * units)`.
        recurrent_bias: Broadcastable to `(..., batch, 3 * units)`.
        hidden: `(..., batch, units)`, the initial state.
        mask: Boolean `(time, ..., batch, 1)`, or `None`. A masked step keeps the state.

    Returns:
        All hidden states `(time, ..., batch, units)` and the last one.
    """
    mask = None if mask is None else tf.cast(mask, inputs.dtype)

    @tf.custom_gradient
    def run(inputs, recurrent_kernel, recurrent_bias, hidden):
        update, reset, candidate, inner, hiddens = _gru_forward(inputs, recurrent_kernel, recurrent_bias, hidden, mask)

        def gradient(hiddens_grad, last_hidden_grad):
            before = _shifted(hiddens, hidden)
            factors = _gru_factors(update, reset, candidate, inner, before, mask)
            inputs_grad, inner_grad, hidden_grad = _gru_backward(
                factors, recurrent_kernel, hiddens_grad, last_hidden_grad
            )
            # Undo the broadcasting of the bias.
            bias_grad, bias_shape = tf.reduce_sum(inner_grad, axis=0), tf.shape(recurrent_bias)
            missing = tf.ones([len(bias_grad.shape) - tf.size(bias_shape)], tf.int32)
            _, axes = tf.raw_ops.BroadcastGradientArgs(s0=tf.shape(bias_grad), s1=tf.concat([missing, bias_shape], 0))
            bias_grad = tf.reshape(tf.reduce_sum(bias_grad, axes), bias_shape)
            return inputs_grad, _kernel_gradient(before, inner_grad), bias_grad, hidden_grad

        return (hiddens, hiddens[-1]), gradient

    return run(inputs, recurrent_kernel, recurrent_bias, hidden)


def _lstm_forward(inputs, recurrent_kernel, hidden, cell, mask):
    units = recurrent_kernel.shape[-2]

    def step(x, m, hidden, cell):
        z = x + tf.matmul(hidden, recurrent_kernel)
        sigmoids, candidate = tf.sigmoid(z[..., : 3 * units]), tf.tanh(z[..., 3 * units :])
        forget_gate, input_gate, output_gate = tf.split(sigmoids, 3, axis=-1)
        new_cell = forget_gate * cell + input_gate * candidate
        new_hidden = output_gate * tf.tanh(new_cell)
        if m is not None:
            new_cell, new_hidden = cell + m * (new_cell - cell), hidden + m * (new_hidden - hidden)
        return (tf.concat([sigmoids, candidate], -1), new_cell, new_hidden), (new_hidden, new_cell)

    return _loop(step, (inputs, mask), (hidden, cell), (4 * units, units, units))


def _lstm_factors(gates, cells, cells_before, mask):
    """The factors of the gradients of cell and hidden state, for all steps at once."""
    forget_gate, input_gate, output_gate, candidate = tf.split(gates, 4, axis=-1)
    # A masked step kept the old state, so `cells` is the new cell only at real steps; only those count.
    tanh_cell = tf.tanh(cells)
    hidden_to_cell = output_gate * (1 - tanh_cell * tanh_cell)
    to_gates = tf.concat(
        [
            cells_before * forget_gate * (1 - forget_gate),
            candidate * input_gate * (1 - input_gate),
            tanh_cell * output_gate * (1 - output_gate),
            input_gate * (1 - candidate * candidate),
        ],
        axis=-1,
    )
    if mask is None:
        return to_gates, hidden_to_cell, forget_gate, None
    return to_gates * mask, hidden_to_cell * mask, 1 + mask * (forget_gate - 1), 1 - mask


def _lstm_backward(factors, recurrent_kernel, hiddens_before, hiddens_grad, last_hidden_grad, last_cell_grad):
    transposed = tf.linalg.matrix_transpose(recurrent_kernel)

    def step(out, to_gates, hidden_to_cell, cell_to_cell, passed, hidden, cell):
        hidden = hidden + out
        cell_new = cell + hidden * hidden_to_cell
        gates = tf.concat([cell_new, cell_new, hidden, cell_new], -1) * to_gates
        before = tf.matmul(gates, transposed)
        if passed is not None:
            before += hidden * passed
        return (gates,), (before, cell_new * cell_to_cell)

    (gates_grad,), (hidden_grad, cell_grad) = _loop(
        step,
        (hiddens_grad, *factors),
        (last_hidden_grad, last_cell_grad),
        (4 * recurrent_kernel.shape[-2],),
        backwards=True,
        return_state=True,
    )
    return gates_grad, _kernel_gradient(hiddens_before, gates_grad), hidden_grad, cell_grad


def _gru_forward(inputs, recurrent_kernel, recurrent_bias, hidden, mask):
    units = recurrent_kernel.shape[-2]

    def step(x, m, hidden):
        inner = tf.matmul(hidden, recurrent_kernel) + recurrent_bias
        update, reset = tf.split(tf.sigmoid(x[..., : 2 * units] + inner[..., : 2 * units]), 2, axis=-1)
        inner = inner[..., 2 * units :]
        candidate = tf.tanh(x[..., 2 * units :] + reset * inner)
        new_hidden = candidate + update * (hidden - candidate)
        if m is not None:
            new_hidden = hidden + m * (new_hidden - hidden)
        return (update, reset, candidate, inner, new_hidden), (new_hidden,)

    return _loop(step, (inputs, mask), (hidden,), (units,) * 5)


def _gru_factors(update, reset, candidate, inner, before, mask):
    to_candidate = (1 - update) * (1 - candidate * candidate)
    to_update = (before - candidate) * update * (1 - update)
    to_reset = to_candidate * inner * reset * (1 - reset)
    to_inputs = tf.concat([to_update, to_reset, to_candidate], -1)
    to_inner = tf.concat([to_update, to_reset, to_candidate * reset], -1)
    if mask is None:
        return to_inputs, to_inner, update
    return to_inputs * mask, to_inner * mask, 1 + mask * (update - 1)


def _gru_backward(factors, recurrent_kernel, hiddens_grad, last_hidden_grad):
    transposed = tf.linalg.matrix_transpose(recurrent_kernel)

    def step(out, to_inputs, to_inner, passed, hidden):
        hidden = hidden + out
        thrice = tf.concat([hidden, hidden, hidden], -1)
        inner = thrice * to_inner
        return (thrice * to_inputs, inner), (hidden * passed + tf.matmul(inner, transposed),)

    (inputs_grad, inner_grad), (hidden_grad,) = _loop(
        step,
        (hiddens_grad, *factors),
        (last_hidden_grad,),
        (3 * recurrent_kernel.shape[-2],) * 2,
        backwards=True,
        return_state=True,
    )
    return inputs_grad, inner_grad, hidden_grad


def _loop(step, inputs, state, widths, backwards=False, return_state=False):
    """Run `step(*inputs_t, *state) -> outputs_t, state` over the leading axis and stack the outputs.

    `widths` are the sizes of the outputs' last axes.
    """
    length = tf.shape(inputs[0])[0] if inputs[0].shape[0] is None else inputs[0].shape[0]
    dtype = inputs[0].dtype
    sources = [
        None if x is None else tf.TensorArray(dtype, length, element_shape=x.shape[1:]).unstack(x) for x in inputs
    ]
    leading = inputs[0].shape[1:-1]
    arrays = [tf.TensorArray(dtype, length, element_shape=[*leading, width]) for width in widths]

    def body(count, state, arrays):
        index = length - 1 - count if backwards else count
        outputs, new_state = step(*(None if a is None else a.read(index) for a in sources), *state)
        new_state = tuple(tf.ensure_shape(n, s.shape) for n, s in zip(new_state, state))
        return count + 1, new_state, [a.write(index, o) for a, o in zip(arrays, outputs)]

    _, state, arrays = tf.while_loop(
        lambda count, *_: count < length, body, (0, tuple(state), arrays), maximum_iterations=length
    )
    outputs = tuple(array.stack() for array in arrays)
    return (outputs, state) if return_state else outputs


def _order_gates(tensor):
    """Reorder i, f, c, o (Keras) to f, i, o, c, which puts the three sigmoids side by side."""
    input_gate, forget_gate, candidate, output_gate = tf.split(tensor, 4, axis=-1)
    return tf.concat([forget_gate, input_gate, output_gate, candidate], axis=-1)


def _shifted(states, first):
    """The state before each step."""
    return tf.concat([first[None], states[:-1]], axis=0)


def _kernel_gradient(hiddens_before, gates_grad):
    if len(hiddens_before.shape) == 4:  # (T, 2, B, U): one product per direction is twice as fast as an einsum
        directions = zip(tf.unstack(hiddens_before, axis=1), tf.unstack(gates_grad, axis=1))
        return tf.stack([_kernel_gradient(*direction) for direction in directions])
    flat = tf.reshape(hiddens_before, [-1, hiddens_before.shape[-1]])
    return tf.matmul(flat, tf.reshape(gates_grad, [-1, gates_grad.shape[-1]]), transpose_a=True)
