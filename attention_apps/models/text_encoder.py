"""The recurrent encoder of texts."""

import keras
from keras import ops

from attention_apps.constants import PADDING
from attention_apps.layers.recurrent import Recurrent


@keras.saving.register_keras_serializable(package="attention_apps")
class TextEncoder(keras.layers.Layer):
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

    def get_config(self):
        names = ("vocabulary_size", "embedding_dim", "units", "num_layers", "cell", "dropout")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
