"""One recurrent layer of a decoder."""

import keras
from keras import ops

from attention_apps.layers.time_loop import time_loop

_GATES = {"lstm": 4, "gru": 3}


@keras.saving.register_keras_serializable(package="attention_apps")
class DecoderCell(keras.layers.Layer):
    """LSTM or GRU whose input comes in two parts: one known for all steps ahead, one only within the loop.

    What is known ahead (the embedded targets) is projected for all steps in one product, `project`. What is not (the
    context, the attentional vector before) is fed to `step`. Where nothing is fed, `run` goes through all steps with
    the fast core of `layers.Recurrent`.

    Args:
        units: size of the state.
        cell: `"lstm"` or `"gru"`.
    """

    def __init__(self, units, cell="lstm", **kwargs):
        super().__init__(**kwargs)
        if cell not in _GATES:
            raise ValueError(f"`cell` must be one of {sorted(_GATES)}. Received: cell={cell!r}")
        self.units = units
        self.cell = cell
        width = _GATES[cell] * units
        self.ahead_dense = keras.layers.Dense(
            width, bias_initializer=self._first_bias, dtype=self.dtype_policy, name="ahead"
        )
        # An LSTM adds all parts up: one product of what is fed and the state side by side.
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

    def _first_bias(self, shape, dtype=None):
        """Zeros, but an LSTM's forget gate starts open."""
        bias = ops.zeros(shape, dtype)
        if self.cell == "gru":
            return bias
        return ops.concatenate([bias[: self.units], bias[: self.units] + 1, bias[2 * self.units :]])

    def zero_state(self, rows):
        return [ops.zeros((rows, self.units), self.compute_dtype) for _ in range(2 if self.cell == "lstm" else 1)]

    def project(self, sequence):
        """Inputs known ahead `(rows, time, dim)`, or of one step `(rows, dim)`, as gate inputs."""
        return self.ahead_dense(sequence)

    def step(self, projected, feed, state):
        """One step: gate inputs `(rows, gates)`, what is fed `(rows, dim)` or `None`, the state; returns the state."""
        if self.cell == "lstm":
            hidden, cell = state
            joint = hidden if feed is None else ops.concatenate([feed, hidden], axis=-1)
            enter, forget, candidate, leave = ops.split(projected + self.recurrent_dense(joint), 4, axis=-1)
            cell = ops.sigmoid(forget) * cell + ops.sigmoid(enter) * ops.tanh(candidate)
            return [ops.sigmoid(leave) * ops.tanh(cell), cell]
        (hidden,) = state
        outer = projected if feed is None else projected + self.feed_dense(feed)
        inner = self.recurrent_dense(hidden)
        update, reset = ops.split(ops.sigmoid(outer[..., : -self.units] + inner[..., : -self.units]), 2, axis=-1)
        candidate = ops.tanh(outer[..., -self.units :] + reset * inner[..., -self.units :])
        return [candidate + update * (hidden - candidate)]

    def run(self, projected, state):
        """All steps at once, nothing fed: gate inputs `(rows, time, gates)` to hidden states and the last state."""
        if keras.backend.backend() != "tensorflow":

            def step(projected_t, state):
                state = self.step(projected_t, None, state)
                return state[0], state

            return time_loop(step, projected, state)
        from attention_apps.layers import recurrent_kernels

        inputs = ops.swapaxes(projected, 0, 1)
        kernel = ops.cast(self.recurrent_dense.kernel, self.compute_dtype)
        if self.cell == "lstm":
            hiddens, *last = recurrent_kernels.lstm(inputs, kernel, *state)
        else:
            bias = ops.cast(self.recurrent_dense.bias, self.compute_dtype)
            hiddens, *last = recurrent_kernels.gru(inputs, kernel, bias, *state)
        return ops.swapaxes(hiddens, 0, 1), list(last)

    def get_config(self):
        return {**super().get_config(), "units": self.units, "cell": self.cell}
