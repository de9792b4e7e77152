"""The recurrent layers of all encoders and decoders."""

import keras
from keras import ops

from attention_apps.layers.constructor_config import ConstructorConfig
from attention_apps.layers.sequence_ops import scan_time

_CELLS = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}
_NUM_GATES = {"lstm": 4, "gru": 3}


@keras.saving.register_keras_serializable(package="attention_apps")
class Recurrent(ConstructorConfig, keras.layers.Layer):
    """LSTM or GRU over a sequence, in one or both directions, fast on a CPU.

    Computes the same as `keras.layers.LSTM` and `keras.layers.GRU`, and keeps its weights in these layers. On the
    TensorFlow backend it runs its own loop, which is several times faster in training and handles both directions at
    once. On other backends, and in training if a GPU is visible, the Keras layers run, which use cuDNN there. cuDNN
    refuses empty sequences, and an exported graph with it would need a GPU, so it is never used for inference.

    Args:
        units: Size of the state of one direction.
        cell: `"lstm"` or `"gru"`.
        bidirectional: Whether a second layer reads the sequence from its end.

    Call arguments:
        sequence: `(batch, time, dim)`.
        mask: Boolean `(batch, time)`; a masked step keeps the state.
        initial_state: List of `(batch, units)`: hidden and cell state (LSTM) or hidden state (GRU), of the forward
            and then of the backward direction. Zeros by default.

    Returns:
        The hidden states `(batch, time, units)`, `(batch, time, 2 * units)` if bidirectional, and the list of final
        states.

    Example:

    >>> layer = Recurrent(4, bidirectional=True)
    >>> outputs, states = layer(keras.ops.ones((2, 3, 5)))
    >>> outputs.shape, len(states)
    (TensorShape([2, 3, 8]), 4)

    Reference:
        Hochreiter and Schmidhuber 1997; Cho et al. 2014.
    """

    def __init__(self, units, cell="lstm", bidirectional=False, **kwargs):
        super().__init__(**kwargs)
        if units < 1:
            raise ValueError(f"`units` must be a positive integer. Received: units={units}")
        if cell not in _CELLS:
            raise ValueError(f"`cell` must be one of {sorted(_CELLS)}. Received: cell={cell!r}")
        self.units = units
        self.cell = cell
        self.bidirectional = bidirectional
        self._states_per_direction = 2 if cell == "lstm" else 1
        directions = ("forward", "backward") if bidirectional else ("forward",)
        self.directions = [
            _CELLS[cell](
                units,
                return_sequences=True,
                return_state=True,
                go_backwards=name == "backward",
                dtype=self.dtype_policy,
                name=name,
            )
            for name in directions
        ]

    def build(self, sequence_shape):
        for layer in self.directions:
            layer.build(sequence_shape)

    def call(self, sequence, mask=None, initial_state=None, training=None):
        if keras.backend.backend() != "tensorflow":
            return self._run_keras(sequence, mask, initial_state)
        from attention_apps.layers import recurrent_kernels

        run = self._run_keras if training and recurrent_kernels.sees_gpu() else self._run_kernel
        return run(sequence, mask, initial_state)

    def _run_keras(self, sequence, mask, initial_state):
        outputs, states = [], []
        share = self._states_per_direction
        for index, layer in enumerate(self.directions):
            first = None if initial_state is None else initial_state[index * share : (index + 1) * share]
            output, *last = layer(sequence, mask=mask, initial_state=first)
            outputs.append(ops.flip(output, axis=1) if layer.go_backwards else output)
            states.extend(last)
        return ops.concatenate(outputs, axis=-1), states

    def _run_kernel(self, sequence, mask, initial_state):
        from attention_apps.layers import recurrent_kernels

        share = self._states_per_direction
        if initial_state is None:
            zeros = ops.zeros((ops.shape(sequence)[0], self.units), self.compute_dtype)
            state = [self._stack([zeros] * len(self.directions))] * share
        else:
            state = [self._stack(initial_state[index::share]) for index in range(share)]
        inputs = self._project(ops.swapaxes(sequence, 0, 1))  # (T, B, 4U) or (T, 2, B, 4U)
        time_mask = None if mask is None else ops.swapaxes(mask, 0, 1)[..., None]  # (T, B, 1)
        if time_mask is not None and self.bidirectional:
            time_mask = ops.stack([time_mask, ops.flip(time_mask, axis=0)], axis=1)
        recurrent = self._stack([layer.cell.recurrent_kernel for layer in self.directions])
        if self.cell == "lstm":
            hiddens, *last = recurrent_kernels.lstm(inputs, recurrent, *state, time_mask)
        else:
            bias = self._stack([layer.cell.bias[1][None] for layer in self.directions])
            hiddens, *last = recurrent_kernels.gru(inputs, recurrent, bias, *state, time_mask)
        if time_mask is not None and initial_state is not None:
            # Before the first real step, Keras returns zeros and not the given state.
            begun = ops.cumsum(ops.cast(time_mask, "int32"), axis=0) > 0
            hiddens = hiddens * ops.cast(begun, hiddens.dtype)
        if not self.bidirectional:
            return ops.swapaxes(hiddens, 0, 1), list(last)
        both = ops.concatenate([hiddens[:, 0], ops.flip(hiddens[:, 1], axis=0)], axis=-1)  # (T, B, 2U)
        return ops.swapaxes(both, 0, 1), [state[direction] for direction in range(2) for state in last]

    def _project(self, sequence):
        """Project the inputs for both directions in one product; the second one is reversed in time."""
        cells = [layer.cell for layer in self.directions]
        kernel = ops.concatenate([cell.kernel for cell in cells], axis=-1)
        biases = [cell.bias if self.cell == "lstm" else cell.bias[0] for cell in cells]
        inputs = ops.matmul(sequence, kernel) + ops.concatenate(biases, axis=-1)
        if not self.bidirectional:
            return inputs
        forward, backward = ops.split(inputs, 2, axis=-1)
        return ops.stack([forward, ops.flip(backward, axis=0)], axis=1)

    def _stack(self, tensors):
        stacked = ops.concatenate([tensor[None] for tensor in tensors], axis=0)
        return stacked if self.bidirectional else stacked[0]

    def compute_mask(self, sequence, mask=None):
        return None


@keras.saving.register_keras_serializable(package="attention_apps")
class PyramidalBidirectionalLSTM(ConstructorConfig, keras.layers.Layer):
    """Concatenates adjacent time steps and runs a bidirectional LSTM over the shorter sequence.

    h_i = BLSTM(h_{i-1}, [x_{2i}; x_{2i+1}]): with a factor of 2, each layer halves the time axis. A sequence that does
    not divide evenly is padded at its end. A joined step is real if any of its steps is; padding inside it is zeroed.

    Args:
        units: Width of one direction.
        factor: Number of steps that are joined into one.

    Call arguments:
        sequence: `(batch, time, dim)`.
        mask: Boolean `(batch, time)`, or `None`.

    Returns:
        The hidden states `(batch, ceil(time / factor), 2 * units)` and their mask.

    Example:

    >>> layer = PyramidalBidirectionalLSTM(4)
    >>> outputs, mask = layer(keras.ops.ones((2, 7, 5)), mask=keras.ops.ones((2, 7), "bool"))
    >>> outputs.shape, mask.shape
    (TensorShape([2, 4, 8]), TensorShape([2, 4]))

    Reference:
        Chan et al. 2016, "Listen, Attend and Spell", section 3.1, eq. 5.
    """

    def __init__(self, units, factor=2, **kwargs):
        super().__init__(**kwargs)
        if factor < 1:
            raise ValueError(f"`factor` must be a positive integer. Received: factor={factor}")
        self.units = units
        self.factor = factor
        self.recurrent = Recurrent(units, bidirectional=True, dtype=self.dtype_policy, name="recurrent")

    def build(self, sequence_shape):
        self.recurrent.build((None, None, self.factor * sequence_shape[-1]))

    def call(self, sequence, mask=None):
        mask = ops.ones(ops.shape(sequence)[:2], "bool") if mask is None else mask
        sequence = sequence * ops.cast(ops.expand_dims(mask, -1), sequence.dtype)
        batch, length, dim = ops.shape(sequence)
        steps = (length + self.factor - 1) // self.factor
        missing = steps * self.factor - length
        joined = ops.pad(sequence, [[0, 0], [0, missing], [0, 0]])
        joined = ops.reshape(joined, (batch, steps, self.factor * dim))  # (B, T / factor, factor · D)
        mask = ops.pad(ops.cast(mask, "int32"), [[0, 0], [0, missing]])
        mask = ops.any(ops.reshape(mask, (batch, steps, self.factor)) > 0, axis=-1)
        outputs, _ = self.recurrent(joined, mask=mask)
        return outputs, mask

    def compute_mask(self, sequence, mask=None):
        return None


@keras.saving.register_keras_serializable(package="attention_apps")
class DecoderCell(ConstructorConfig, keras.layers.Layer):
    """LSTM or GRU whose input has two parts: one known in advance, one computed within the loop.

    `ahead_dense` projects the inputs that are known in advance (the embedded targets) to gate inputs, for all steps in
    one product. `step` takes these and the inputs that are not (the context, the previous attentional vector). If there
    are none of the latter, `run` computes all steps with the fast kernels of `Recurrent`.

    Args:
        units: Size of the state.
        cell: `"lstm"` or `"gru"`.
    """

    def __init__(self, units, cell="lstm", **kwargs):
        super().__init__(**kwargs)
        if cell not in _NUM_GATES:
            raise ValueError(f"`cell` must be one of {sorted(_NUM_GATES)}. Received: cell={cell!r}")
        self.units = units
        self.cell = cell
        width = _NUM_GATES[cell] * units
        self.ahead_dense = keras.layers.Dense(
            width, bias_initializer=self._initial_bias, dtype=self.dtype_policy, name="ahead"
        )
        # An LSTM sums all parts, so that one product of feed and state, concatenated, is enough.
        self.recurrent_dense = keras.layers.Dense(
            width, use_bias=cell == "gru", dtype=self.dtype_policy, name="recurrent"
        )
        self.feed_dense = keras.layers.Dense(width, use_bias=False, dtype=self.dtype_policy, name="feed")

    def build(self, ahead_dim, feed_dim=0):
        self.ahead_dense.build((None, ahead_dim))
        if self.cell == "lstm":
            self.recurrent_dense.build((None, feed_dim + self.units))
        else:
            self.recurrent_dense.build((None, self.units))
            if feed_dim:
                self.feed_dense.build((None, feed_dim))
        self.built = True

    def _initial_bias(self, shape, dtype=None):
        """Zeros, except that the forget gate of an LSTM starts open."""
        bias = ops.zeros(shape, dtype)
        if self.cell == "gru":
            return bias
        return ops.concatenate([bias[: self.units], bias[: self.units] + 1, bias[2 * self.units :]])

    def zero_state(self, rows):
        return [ops.zeros((rows, self.units), self.compute_dtype) for _ in range(2 if self.cell == "lstm" else 1)]

    def step(self, projected, feed, state):
        """Map gate inputs `(rows, gates)`, feed `(rows, dim)` or `None`, and the state to the next state."""
        if self.cell == "lstm":
            hidden, cell = state
            joint = hidden if feed is None else ops.concatenate([feed, hidden], axis=-1)
            input_gate, forget_gate, candidate, output_gate = ops.split(
                projected + self.recurrent_dense(joint), 4, axis=-1
            )
            cell = ops.sigmoid(forget_gate) * cell + ops.sigmoid(input_gate) * ops.tanh(candidate)
            return [ops.sigmoid(output_gate) * ops.tanh(cell), cell]
        (hidden,) = state
        outer = projected if feed is None else projected + self.feed_dense(feed)
        inner = self.recurrent_dense(hidden)
        update, reset = ops.split(ops.sigmoid(outer[..., : -self.units] + inner[..., : -self.units]), 2, axis=-1)
        candidate = ops.tanh(outer[..., -self.units :] + reset * inner[..., -self.units :])
        return [candidate + update * (hidden - candidate)]

    def run(self, projected, state):
        """Map gate inputs `(rows, time, gates)` of all steps, without feed, to hidden states and the final state."""
        if keras.backend.backend() != "tensorflow":

            def step(projected_t, state):
                state = self.step(projected_t, None, state)
                return state[0], state

            return scan_time(step, projected, state)
        from attention_apps.layers import recurrent_kernels

        inputs = ops.swapaxes(projected, 0, 1)
        kernel = ops.cast(self.recurrent_dense.kernel, self.compute_dtype)
        if self.cell == "lstm":
            hiddens, *last = recurrent_kernels.lstm(inputs, kernel, *state)
        else:
            bias = ops.cast(self.recurrent_dense.bias, self.compute_dtype)
            hiddens, *last = recurrent_kernels.gru(inputs, kernel, bias, *state)
        return ops.swapaxes(hiddens, 0, 1), list(last)
