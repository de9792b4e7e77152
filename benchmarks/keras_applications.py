"""The three applications around `keras_models.KerasDecoder`, each with its encoder, its loss and a step of a search."""

import keras
import numpy as np
from keras import ops
from keras_models import TINY, KerasDecoder
from workloads import UNKNOWN, Workload

Assignments = list[tuple[keras.Variable, np.ndarray]]


class KerasApplication(keras.layers.Layer):
    """What the applications have in common; each has a `decoder` and says how it encodes."""

    def encode(self, source, training):
        """What is attended to, and what the first state is made of."""
        raise NotImplementedError

    def logits(self, source, tokens):
        return self.decoder.run(tokens, self.decoder.begin(*self.encode(source, training=True)))[0]

    def loss(self, source, tokens):
        logits = self.logits(source, tokens[..., :-1])
        losses = keras.losses.sparse_categorical_crossentropy(tokens[..., 1:], logits, from_logits=True)
        return ops.mean(losses)

    def begin(self, source):
        """The first states of a search."""
        return self.decoder.begin(*self.encode(source, training=False))

    def log_probs(self, token, states, source):
        """One step of a search."""
        logits, _, _, states = self.decoder.step(token, states)
        return ops.log_softmax(logits), states


class KerasCaptioner(KerasApplication):
    """Attends to given regions of an image."""

    def __init__(self, workload: Workload):
        super().__init__()
        self.workload = workload
        self.decoder = KerasDecoder(workload)
        self.decoder.build(workload.memory_dim)
        self.built = True

    def encode(self, source, training):
        values = ops.repeat(source["features"], self.workload.targets, axis=0)
        return values, ops.mean(values, axis=1)

    def logits(self, source, tokens):
        flat = ops.reshape(tokens, (-1, tokens.shape[-1]))
        return ops.reshape(super().logits(source, flat), (*tokens.shape, -1))

    def assignments(self, arrays: dict[str, np.ndarray]) -> Assignments:
        return [
            *_decoder(arrays, self.decoder),
            (self.decoder.embedding.embeddings, arrays["decoder/embedding/embeddings"]),
            (self.decoder.output_bias, arrays["decoder/readout/bias"]),
            *_dense(arrays, "decoder/context_gate", self.decoder.cell.gate),
        ]


class KerasRecognizer(KerasApplication):
    """Two convolutions that halve the time, residual bidirectional LSTMs, and a speller."""

    def __init__(self, workload: Workload):
        super().__init__()
        layers, width, filters = keras.layers, 2 * workload.encoder_units, workload.encoder_filters
        self.pad = layers.ZeroPadding2D(1)
        self.convolutions = [layers.Conv2D(filters, 3, strides=2, use_bias=False) for _ in range(2)]
        self.convolution_norms = [layers.BatchNormalization() for _ in range(2)]
        self.projection = layers.Dense(width)
        self.recurrent = [
            layers.Bidirectional(layers.LSTM(workload.encoder_units, return_sequences=True))
            for _ in range(workload.encoder_layers)
        ]
        self.norms = [layers.LayerNormalization() for _ in range(workload.encoder_layers + 1)]
        self.decoder = KerasDecoder(workload)
        self.decoder.build(width)
        self.encode({"features": ops.zeros((1, 8, workload.source_dim))}, training=False)
        self.built = True

    def encode(self, source, training):
        values = ops.expand_dims(source["features"], -1)
        for convolution, norm in zip(self.convolutions, self.convolution_norms, strict=True):
            values = ops.relu(norm(convolution(self.pad(values)), training=training))
        values = ops.reshape(values, (*values.shape[:2], -1))
        values = self.norms[0](self.projection(values))
        for layer, norm in zip(self.recurrent, self.norms[1:], strict=True):
            values = norm(values + layer(values))
        return values, ops.mean(values, axis=1)

    def assignments(self, arrays: dict[str, np.ndarray]) -> Assignments:
        pairs = [
            *_decoder(arrays, self.decoder),
            *_dense(arrays, "encoder/convolutions/projection", self.projection),
            *_dense(arrays, "decoder/readout/output", self.decoder.output_dense),
            (self.decoder.embedding.embeddings, arrays["decoder/embedding/embeddings"]),
            (self.decoder.cell.location.kernel, arrays["decoder/attention/location_filters"][:, None]),
            (self.decoder.cell.location_key.kernel, arrays["decoder/attention/location_kernel"]),
        ]
        for index, norm in enumerate(self.norms):
            pairs += _norm(arrays, f"encoder/norm_{index}", norm)
        for index, layer in enumerate(self.recurrent):
            pairs += _bidirectional(arrays, f"encoder/layer_{index}", layer)
        for index, (convolution, norm) in enumerate(zip(self.convolutions, self.convolution_norms, strict=True)):
            pairs.append((convolution.kernel, arrays[f"encoder/convolutions/convolution_{index}/kernel"]))
            pairs += _norm(arrays, f"encoder/convolutions/norm_{index}", norm)
        return pairs


class KerasSummarizer(KerasApplication):
    """A bidirectional LSTM, and copying mixed into the whole output distribution."""

    def __init__(self, workload: Workload):
        super().__init__()
        self.workload = workload
        lstm = keras.layers.LSTM(workload.encoder_units, return_sequences=True, return_state=True)
        self.encoder = keras.layers.Bidirectional(lstm)
        self.encoder.build((None, None, workload.embedding_dim))
        self.decoder = KerasDecoder(workload)
        self.decoder.build(2 * workload.memory_dim)
        self.switch = keras.layers.Dense(1, "sigmoid")
        self.switch.build((None, workload.memory_dim + workload.units + workload.embedding_dim))
        self.built = True

    def encode(self, source, training):
        values, *states = self.encoder(self.decoder.embedding(source["token_ids"]))
        return values, ops.concatenate(states, axis=-1)

    def logits(self, source, tokens):
        states = self.decoder.begin(*self.encode(source, training=True))
        return self.mix(*self.decoder.run(tokens, states), source["source_ids"])

    def loss(self, source, tokens):
        log_probs = self.logits(source, tokens[:, :-1])
        return -ops.mean(ops.take_along_axis(log_probs, tokens[:, 1:, None], axis=2))

    def log_probs(self, token, states, source):
        token = ops.where(token < self.workload.vocabulary, token, UNKNOWN)
        *parts, states = self.decoder.step(token, states)
        parts = [ops.expand_dims(part, 1) for part in parts]
        return self.mix(*parts, source["source_ids"])[:, 0], states

    def mix(self, logits, weights, features, source_ids):
        """Log of the mixture, `(batch, time, vocabulary + source)`."""
        batch, length, positions = weights.shape
        generate = self.switch(features)
        words = ops.pad(ops.softmax(logits) * generate, ((0, 0), (0, 0), (0, positions)))
        rows = ops.repeat(ops.arange(batch * length), positions)
        ids = ops.reshape(ops.repeat(ops.expand_dims(source_ids, 1), length, axis=1), (-1,))
        shape = (batch * length, words.shape[-1])
        copied = ops.scatter(ops.stack([rows, ids], axis=1), ops.reshape(weights * (1 - generate), (-1,)), shape)
        return ops.log(ops.maximum(words + ops.reshape(copied, words.shape), TINY))

    def assignments(self, arrays: dict[str, np.ndarray]) -> Assignments:
        return [
            *_decoder(arrays, self.decoder),
            *_bidirectional(arrays, "encoder/layer_0", self.encoder),
            *_dense(arrays, "switch", self.switch),
            (self.decoder.embedding.embeddings, arrays["encoder/embedding/embeddings"]),
            (self.decoder.output_bias, arrays["decoder/readout/bias"]),
        ]


def _decoder(arrays, decoder) -> Assignments:
    """What all three have in their decoders."""
    cell, recurrent = decoder.cell, arrays["decoder/cell_0/recurrent/kernel"]
    units = recurrent.shape[1] // 4
    return [
        (cell.cell.kernel, np.concatenate([arrays["decoder/cell_0/ahead/kernel"], recurrent[:-units]])),
        (cell.cell.recurrent_kernel, recurrent[-units:]),
        (cell.cell.bias, arrays["decoder/cell_0/ahead/bias"]),
        (cell.score.kernel, arrays["decoder/attention/score_kernel"][:, None]),
        *_dense(arrays, "decoder/attention/query", cell.query),
        *_dense(arrays, "decoder/attention/key", cell.key),
        *_dense(arrays, "decoder/initial_state", decoder.initial_state),
        *_dense(arrays, "decoder/readout/hidden", decoder.hidden_readout),
        *_dense(arrays, "decoder/readout/context", decoder.context_readout),
    ]


def _dense(arrays, name, layer) -> Assignments:
    pairs = [(layer.kernel, arrays[f"{name}/kernel"])]
    return [*pairs, (layer.bias, arrays[f"{name}/bias"])] if layer.use_bias else pairs


def _norm(arrays, name, layer) -> Assignments:
    return [(layer.gamma, arrays[f"{name}/gamma"]), (layer.beta, arrays[f"{name}/beta"])]


def _bidirectional(arrays, name, layer) -> Assignments:
    pairs = []
    for direction, lstm in (("forward", layer.forward_layer), ("backward", layer.backward_layer)):
        for kind in ("kernel", "recurrent_kernel", "bias"):
            pairs.append((getattr(lstm.cell, kind), arrays[f"{name}/{direction}/lstm_cell/{kind}"]))
    return pairs
