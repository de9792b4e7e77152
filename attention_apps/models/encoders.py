"""The recurrent encoders of texts and of speech."""

import keras
from keras import ops

from attention_apps.constants import PADDING
from attention_apps.layers.constructor_config import ConstructorConfig
from attention_apps.layers.recurrent import PyramidalBidirectionalLSTM, Recurrent

_FRONT_ENDS = ("convolutional", "pyramidal")
_HALVINGS = 2


@keras.saving.register_keras_serializable(package="attention_apps")
class TextEncoder(ConstructorConfig, keras.layers.Layer):
    """Embeds words and reads them with bidirectional recurrent layers.

    Args:
        vocabulary_size: Number of words.
        embedding_dim: Width of the embeddings.
        units: Width of one direction.
        num_layers: Number of bidirectional layers.
        cell: `"lstm"` or `"gru"`.
        dropout: Dropout rate on embeddings and between layers.

    Call arguments:
        source: Dict of `token_ids` `(batch, source)`, padded with 0, and, for copying, `source_ids` of the same shape.

    Returns:
        The memory: `values` `(batch, source, 2 * units)`, `mask` `(batch, source)`, `state` (the final states of the
        last layer), and `source_ids` if given.

    Example:

    >>> encoder = TextEncoder(100, 8, 16)
    >>> memory = encoder({"token_ids": keras.ops.ones((2, 5), "int32")})
    >>> memory["values"].shape
    TensorShape([2, 5, 32])
    """

    def __init__(self, vocabulary_size, embedding_dim, units, num_layers=1, cell="lstm", dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.embedding_dim = embedding_dim
        self.units = units
        self.num_layers = num_layers
        self.cell = cell
        self.dropout = dropout
        policy = self.dtype_policy
        self.embedding = keras.layers.Embedding(vocabulary_size, embedding_dim, dtype=policy, name="embedding")
        self.layers = [
            Recurrent(units, cell, bidirectional=True, dtype=policy, name=f"layer_{index}")
            for index in range(num_layers)
        ]
        self.drop = keras.layers.Dropout(dropout, dtype=policy)

    def build(self, source_shape):
        self.embedding.build((None, None))
        width = self.embedding_dim
        for layer in self.layers:
            layer.build((None, None, width))
            width = 2 * self.units
        self.built = True

    def call(self, source):
        token_ids = source["token_ids"]
        mask = ops.not_equal(token_ids, PADDING)
        values, state = self.embedding(token_ids), None
        for layer in self.layers:
            values, state = layer(self.drop(values), mask=mask)
        memory = {"values": self.drop(values), "mask": mask, "state": state}
        if "source_ids" in source:
            memory["source_ids"] = source["source_ids"]
        return memory

    def compute_output_shape(self, source_shape):
        batch, length = source_shape["token_ids"]
        states = 2 * (2 if self.cell == "lstm" else 1)
        shapes = {
            "values": (batch, length, 2 * self.units),
            "mask": (batch, length),
            "state": [(batch, self.units)] * states,
        }
        if "source_ids" in source_shape:
            shapes["source_ids"] = (batch, length)
        return shapes


@keras.saving.register_keras_serializable(package="attention_apps")
class Listener(ConstructorConfig, keras.layers.Layer):
    """Shortens a spectrogram to a quarter of its frames and encodes them with bidirectional LSTMs.

    The front end halves the time twice. Each bidirectional layer has a residual connection and a normalized output:
    x ← LayerNorm(x + BLSTM(x)). A CTC head predicts the letter at each position.

    Args:
        vocabulary_size: Number of letters, for the CTC head; id 0 is the blank.
        units: Width of one direction.
        num_layers: Number of bidirectional layers after the front end.
        front_end: `"convolutional"` for two convolutions, `"pyramidal"` for two layers of
            `PyramidalBidirectionalLSTM`.
        filters: Number of filters of each convolution.
        dropout: Dropout rate on the input of each layer and on the memory.

    Call arguments:
        source: Dict of `features` `(batch, time, mels)` and `mask`, boolean `(batch, time)`.

    Returns:
        The memory: `values` `(batch, ceil(time / 4), 2 * units)`, `mask` `(batch, ceil(time / 4))`, `state` (the final
        states of the last layer) and `ctc_logits` `(batch, ceil(time / 4), vocabulary)`.

    Example:

    >>> listener = Listener(31, units=8)
    >>> source = {"features": keras.ops.ones((2, 9, 16)), "mask": keras.ops.ones((2, 9), "bool")}
    >>> memory = listener(source)
    >>> memory["values"].shape, memory["ctc_logits"].shape
    (TensorShape([2, 3, 16]), TensorShape([2, 3, 31]))

    Reference:
        Chan et al. 2016, "Listen, Attend and Spell", section 3.1; Kim et al. 2017, "Joint CTC-Attention Based
        End-to-End Speech Recognition Using Multi-Task Learning", section 2.3.
    """

    def __init__(
        self,
        vocabulary_size,
        units=192,
        num_layers=3,
        front_end="convolutional",
        filters=32,
        dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if front_end not in _FRONT_ENDS:
            raise ValueError(f"`front_end` must be one of {_FRONT_ENDS}. Received: front_end={front_end!r}")
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be a positive integer. Received: num_layers={num_layers}")
        self.vocabulary_size = vocabulary_size
        self.units = units
        self.num_layers = num_layers
        self.front_end = front_end
        self.filters = filters
        self.dropout = dropout
        policy = self.dtype_policy
        if front_end == "convolutional":
            convolutions = ConvolutionalFrontEnd(filters, 2 * units, _HALVINGS, dtype=policy, name="convolutions")
            self.reductions = [convolutions]
        else:
            self.reductions = [
                PyramidalBidirectionalLSTM(units, dtype=policy, name=f"pyramid_{index}") for index in range(_HALVINGS)
            ]
        self.recurrent_layers = [
            Recurrent(units, bidirectional=True, dtype=policy, name=f"layer_{index}") for index in range(num_layers)
        ]
        self.norms = [
            keras.layers.LayerNormalization(dtype=policy, name=f"norm_{index}") for index in range(num_layers + 1)
        ]
        self.drop = keras.layers.Dropout(dropout, dtype=policy)
        self.ctc_dense = keras.layers.Dense(vocabulary_size, dtype=policy, name="ctc")

    def build(self, source_shape):
        width = source_shape["features"][-1]
        for reduction in self.reductions:
            reduction.build((None, None, width))
            width = 2 * self.units
        for layer in (*self.norms, *self.recurrent_layers, self.ctc_dense):
            layer.build((None, None, 2 * self.units))
        self.built = True

    def call(self, source):
        values, mask = source["features"], source["mask"]
        for reduction in self.reductions:
            values, mask = reduction(values, mask=mask)
        values = self.norms[0](values)
        for layer, norm in zip(self.recurrent_layers, self.norms[1:], strict=True):
            output, state = layer(self.drop(values), mask=mask)
            values = norm(values + output)
        values = self.drop(values)
        return {"values": values, "mask": mask, "state": state, "ctc_logits": self.ctc_dense(values)}

    def compute_output_shape(self, source_shape):
        batch, time, _ = source_shape["features"]
        for _ in range(_HALVINGS):
            time = _halved(time)
        return {
            "values": (batch, time, 2 * self.units),
            "mask": (batch, time),
            "state": [(batch, self.units)] * 4,
            "ctc_logits": (batch, time, self.vocabulary_size),
        }


@keras.saving.register_keras_serializable(package="attention_apps")
class ConvolutionalFrontEnd(ConstructorConfig, keras.layers.Layer):
    """Convolutions of 3 x 3 over time and frequency, each with stride 2, batch normalization and ReLU.

    Padding is zeroed before each convolution and excluded from the batch statistics. Every convolution pads one frame
    and one frequency on each side, no matter how long the batch is. The result for an utterance therefore does not
    depend on the other utterances in its batch.

    Args:
        filters: Number of filters of each convolution.
        units: Width of the output, a linear projection of all filters and frequencies of a frame.
        num_layers: Number of convolutions; each halves the time.

    Call arguments:
        features: `(batch, time, mels)`.
        mask: Boolean `(batch, time)`; `True` means real.

    Returns:
        `(batch, ceil(time / 2^num_layers), units)`, zero at padding, and its mask.

    Reference:
        Amodei et al. 2016, "Deep Speech 2", section 3.4; Zhang et al. 2017, "Very Deep Convolutional Networks for
        End-to-End Speech Recognition", section 2.
    """

    def __init__(self, filters, units, num_layers=2, **kwargs):
        super().__init__(**kwargs)
        for name, size in (("filters", filters), ("units", units), ("num_layers", num_layers)):
            if size < 1:
                raise ValueError(f"`{name}` must be a positive integer. Received: {name}={size}")
        self.filters = filters
        self.units = units
        self.num_layers = num_layers
        policy, layers = self.dtype_policy, keras.layers
        self.convolutions = [
            layers.Conv2D(filters, 3, strides=2, use_bias=False, dtype=policy, name=f"convolution_{index}")
            for index in range(num_layers)
        ]
        self.norms = [
            layers.BatchNormalization(momentum=0.95, dtype=policy, name=f"norm_{index}") for index in range(num_layers)
        ]
        self.dense = layers.Dense(units, dtype=policy, name="projection")

    def build(self, features_shape):
        mels, channels = features_shape[-1], 1
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            convolution.build((None, None, None, channels))
            mels, channels = _halved(mels), self.filters
            norm.build((None, None, mels, channels))
        self.dense.build((None, None, mels * channels))

    def call(self, features, mask, training=None):
        values = _without_padding(ops.expand_dims(features, -1), mask)  # (B, T, mels, 1)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            values = convolution(ops.pad(values, ((0, 0), (1, 1), (1, 1), (0, 0))))
            mask = mask[:, ::2]
            everywhere = ops.broadcast_to(ops.expand_dims(mask, -1), ops.shape(values)[:-1])  # (B, T, mels)
            values = _without_padding(ops.relu(norm(values, training=training, mask=everywhere)), mask)
        batch, time = ops.shape(values)[:2]
        values = ops.reshape(values, (batch, time, values.shape[2] * self.filters))
        return _without_padding(self.dense(values), mask), mask

    def compute_mask(self, features, mask=None):
        return None


def _halved(size):
    """The size of an axis after a stride of 2; `None` if unknown."""
    return None if size is None else (size + 1) // 2


def _without_padding(values, mask):
    mask = ops.reshape(mask, (*ops.shape(mask), *(1,) * (len(values.shape) - 2)))
    return values * ops.cast(mask, values.dtype)
