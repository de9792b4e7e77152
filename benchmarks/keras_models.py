"""The workloads' models with Keras' own layers: `keras.layers.RNN` around a cell that attends.

The cell does everything step by step, keys projected anew each time, as such cells are usually written. Targets of one
source each get a copy of it.
"""

import keras
from keras import ops
from workloads import Workload

TINY = 1e-30  # stands for a probability of zero


class AttentionCell(keras.layers.Layer):
    """Attention and an LSTM; puts out hidden state, context and weights side by side.

    `values`, what to attend to, is set before the layer around it runs: Keras 3 has no constants of a cell.
    """

    def __init__(self, workload: Workload, **kwargs):
        super().__init__(**kwargs)
        layers, units = keras.layers, workload.attention_units
        is_speech = workload.application == "recognizer"
        self.values = None
        self.attends_first = workload.application != "summarizer"
        self.source_length = -(-workload.source_length // 4) if is_speech else workload.source_length
        self.state_size = [workload.units, workload.units, *([self.source_length] if is_speech else [])]
        self.sizes = [workload.units, workload.memory_dim, self.source_length]
        self.output_size = sum(self.sizes)
        self.query, self.score = layers.Dense(units, use_bias=False), layers.Dense(1, use_bias=False)
        self.key = layers.Dense(units, use_bias=is_speech)
        self.gate = layers.Dense(1, "sigmoid") if workload.application == "captioner" else None
        self.location = None
        if is_speech:
            width = workload.location_width
            self.location = layers.Conv1D(workload.location_filters, width, padding="same", use_bias=False)
            self.location_key = layers.Dense(units, use_bias=False)
        self.cell = layers.LSTMCell(workload.units)

    def build(self, inputs_shape):
        units, dim, _ = self.sizes
        self.query.build((None, units))
        self.key.build((None, None, dim))
        self.score.build((None, None, self.key.units))
        self.cell.build((None, inputs_shape[-1] + (dim if self.attends_first else 0)))
        if self.gate is not None:
            self.gate.build((None, units))
        if self.location is not None:
            self.location.build((None, None, 1))
            self.location_key.build((None, None, self.location.filters))

    def call(self, inputs, states):
        states = list(states)
        if self.attends_first:
            context, weights = self.attend(states)
            inputs = ops.concatenate([inputs, context], axis=-1)
        hidden, states[:2] = self.cell(inputs, states[:2])
        if not self.attends_first:
            context, weights = self.attend(states)
        if self.location is not None:
            states[2] = weights
        return ops.concatenate([hidden, context, weights], axis=-1), states

    def attend(self, states):
        hidden = self.key(self.values) + ops.expand_dims(self.query(states[0]), 1)  # (B, S, U)
        if self.location is not None:
            hidden = hidden + self.location_key(self.location(ops.expand_dims(states[2], -1)))
        weights = ops.softmax(self.score(ops.tanh(hidden))[..., 0])
        context = ops.squeeze(ops.matmul(ops.expand_dims(weights, 1), self.values), 1)
        return (context if self.gate is None else context * self.gate(states[0])), weights


class KerasDecoder(keras.layers.Layer):
    """Embedding, the cell in a `keras.layers.RNN`, and the layers up to the logits."""

    def __init__(self, workload: Workload, **kwargs):
        super().__init__(**kwargs)
        layers, is_speech = keras.layers, workload.application == "recognizer"
        self.workload = workload
        self.embedding = layers.Embedding(workload.vocabulary, workload.embedding_dim)
        self.cell = AttentionCell(workload)
        self.loop = layers.RNN(self.cell, return_sequences=True)
        self.initial_state = layers.Dense(2 * workload.units, "tanh")
        width = workload.units if is_speech else workload.embedding_dim
        self.hidden_readout, self.context_readout = layers.Dense(width), layers.Dense(width, use_bias=False)
        self.output_dense = layers.Dense(workload.vocabulary) if is_speech else None

    def build(self, summary_dim):
        units, dim, width = self.workload.units, self.workload.memory_dim, self.workload.embedding_dim
        self.embedding.build((None, None))
        self.loop.build((None, None, width))
        self.initial_state.build((None, summary_dim))
        self.hidden_readout.build((None, units))
        self.context_readout.build((None, dim))
        if self.output_dense is None:
            self.output_bias = self.add_weight(shape=(self.workload.vocabulary,), initializer="zeros")
        else:
            self.output_dense.build((None, self.hidden_readout.units))
        self.built = True

    def begin(self, values, summary):
        """The cell's first states; it attends to `values` from now on."""
        self.cell.values = values
        states = ops.split(self.initial_state(summary), 2, axis=-1)
        is_speech = self.output_dense is not None
        return [*states, ops.zeros_like(values[:, :, 0])] if is_speech else states

    def run(self, tokens, states):
        """All steps: logits, attention weights and the features that decide on copying."""
        embedded = self.embedding(tokens)
        return self.read(self.loop(embedded, initial_state=states), embedded)

    def step(self, token, states):
        """One step, and the next states."""
        embedded = self.embedding(token)
        outputs, states = self.cell(embedded, states)
        return *self.read(outputs, embedded), states

    def read(self, outputs, embedded):
        units, dim, _ = self.cell.sizes
        hidden, context, weights = ops.split(outputs, [units, units + dim], axis=-1)
        joined = self.hidden_readout(hidden) + self.context_readout(context)
        if self.workload.application == "captioner":
            joined = joined + embedded
        features = ops.concatenate([context, hidden, embedded], axis=-1)
        return self.to_logits(ops.tanh(joined)), weights, features

    def to_logits(self, vector):
        if self.output_dense is not None:
            return self.output_dense(vector)
        return ops.matmul(vector, ops.transpose(self.embedding.embeddings)) + self.output_bias
