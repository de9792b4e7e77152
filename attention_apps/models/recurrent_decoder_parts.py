"""The recurrent layer and the output layers of recurrent decoders."""

import keras
from keras import ops

from attention_apps.layers.loops import scan_time

_NUM_GATES = {"lstm": 4, "gru": 3}


@keras.saving.register_keras_serializable(package="attention_apps")
class DecoderCell(keras.layers.Layer):
    """LSTM or GRU whose input has two parts: one known in advance, one computed within the loop.

    `project` maps the inputs that are known in advance (the embedded targets) to gate inputs, for all steps in one
    product. `step` takes these and the inputs that are not (the context, the previous attentional vector). If there
    are none of the latter, `run` computes all steps with the fast kernels of `layers.Recurrent`.

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

    def project(self, sequence):
        """Map inputs `(rows, time, dim)`, or `(rows, dim)` for one step, to gate inputs."""
        return self.ahead_dense(sequence)

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

    def get_config(self):
        return {**super().get_config(), "units": self.units, "cell": self.cell}


@keras.saving.register_keras_serializable(package="attention_apps")
class Readout(keras.layers.Layer):
    """The output layers of a recurrent decoder: from hidden state, context and last word to a vector, then to logits.

    With `deep`, the vector is tanh(E y + L_h h + L_z z), Xu et al. 2015, eq. 7. Otherwise it is tanh(W [z; h]), the
    attentional vector of Luong et al. 2015, eq. 5, or, without a context, the hidden state itself. With `tied`
    embeddings, the vector is as wide as an embedding, and the logits are its products with all embeddings.

    Args:
        vocabulary_size: Number of words.
        embedding_dim: Width of the embeddings.
        units: Width of the vector if it is neither `deep` nor `tied`.
        deep: Whether the vector depends on the last word.
        tied: Whether `to_logits` uses the embedding matrix.
        dropout: Dropout rate on the vector.
        variational: Whether the dropout mask is the same at every step.

    Call arguments:
        hidden: `(rows, time, units)`.
        context: `(rows, time, dim)` or `None`.
        embedded: `(rows, time, embedding_dim)`, the last words.

    Returns:
        The vector, `(rows, time, width)`.
    """

    def __init__(
        self,
        vocabulary_size,
        embedding_dim,
        units,
        deep=False,
        tied=False,
        dropout=0.0,
        variational=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.embedding_dim = embedding_dim
        self.units = units
        self.deep = deep
        self.tied = tied
        self.dropout = dropout
        self.variational = variational
        self.width = embedding_dim if deep or tied else units
        self.hidden_dense = keras.layers.Dense(self.width, dtype=self.dtype_policy, name="hidden")
        self.context_dense = keras.layers.Dense(self.width, use_bias=False, dtype=self.dtype_policy, name="context")
        self.output_dense = keras.layers.Dense(vocabulary_size, dtype=self.dtype_policy, name="output")

    def build(self, hidden_dim, context_dim):
        self.has_context = context_dim > 0
        self.joins = self.deep or self.has_context or self.width != hidden_dim
        if self.joins:
            self.hidden_dense.build((None, hidden_dim))
        if self.has_context:
            self.context_dense.build((None, context_dim))
        if self.tied:
            self.bias = self.add_weight(shape=(self.vocabulary_size,), initializer="zeros", name="bias")
        else:
            self.output_dense.build((None, self.width))
        shape = (None, 1, self.width) if self.variational else None
        self.drop = keras.layers.Dropout(self.dropout, noise_shape=shape, dtype=self.dtype_policy)
        self.built = True

    def call(self, hidden, context, embedded):
        if not self.joins:
            return hidden
        joined = self.hidden_dense(hidden)
        if self.has_context:
            joined = joined + self.context_dense(context)
        if self.deep:
            joined = joined + embedded
        return ops.tanh(joined)

    def to_logits(self, vector, embeddings=None):
        """Map vectors to logits `(..., vocabulary)`; `embeddings` is the matrix of tied embeddings."""
        vector = self.drop(vector) if len(vector.shape) == 3 else vector
        if not self.tied:
            return self.output_dense(vector)
        matrix = ops.cast(embeddings, self.compute_dtype)
        return ops.matmul(vector, ops.transpose(matrix)) + ops.cast(self.bias, self.compute_dtype)

    def get_config(self):
        names = ("vocabulary_size", "embedding_dim", "units", "deep", "tied", "dropout", "variational")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
