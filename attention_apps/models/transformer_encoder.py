"""The Transformer encoder of texts."""

import keras
from keras import ops

from attention_apps.layers.position_encoding import SinusoidalPositionEncoding
from attention_apps.layers.transformer_blocks import TransformerEncoderBlock
from attention_apps.models.tokens import PADDING


@keras.saving.register_keras_serializable(package="attention_apps")
class TransformerEncoder(keras.layers.Layer):
    """Embeds words, gives them positions and lets each look at all others.

    Args:
        vocabulary_size: number of words.
        embedding_dim: width of embeddings and blocks.
        num_layers: number of blocks.
        num_heads: number of attention heads.
        hidden_dim: width of the feed-forward networks.
        dropout: rate on embeddings and in the blocks.

    Call arguments:
        source: dict of `token_ids` `(batch, source)`, padded with 0, and, for copying, `source_ids` of the same shape.

    Returns:
        The memory: `values` `(batch, source, embedding_dim)`, `mask`, and the `source_ids` where they were given.

    Example:

    >>> encoder = TransformerEncoder(100, 8, num_heads=2, hidden_dim=16)
    >>> memory = encoder({"token_ids": keras.ops.ones((2, 5), "int32")})
    >>> memory["values"].shape
    TensorShape([2, 5, 8])

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need".
    """

    def __init__(
        self, vocabulary_size, embedding_dim, num_layers=2, num_heads=4, hidden_dim=1024, dropout=0.0, **kwargs
    ):
        super().__init__(**kwargs)
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1. Received: num_layers={num_layers}")
        self.vocabulary_size = vocabulary_size
        self.embedding_dim = embedding_dim
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        policy = self.dtype_policy
        self.embedding = keras.layers.Embedding(vocabulary_size, embedding_dim, dtype=policy, name="embedding")
        self.position_encoding = SinusoidalPositionEncoding(dtype=policy, name="position_encoding")
        self.blocks = [
            TransformerEncoderBlock(
                num_heads, embedding_dim // num_heads, hidden_dim, dropout=dropout, dtype=policy, name=f"block_{index}"
            )
            for index in range(num_layers)
        ]
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, dtype=policy, name="norm")
        self.drop = keras.layers.Dropout(dropout, dtype=policy)

    def build(self, source_shape):
        if not self.embedding.built:
            self.embedding.build((None, None))
        shape = (None, None, self.embedding_dim)
        for layer in (*self.blocks, self.norm):
            layer.build(shape)
        self.built = True

    def call(self, source):
        token_ids = source["token_ids"]
        mask = ops.not_equal(token_ids, PADDING)
        values = self.embedding(token_ids) * self.embedding_dim**0.5
        values = self.drop(self.position_encoding(values))
        for block in self.blocks:
            values = block(values, mask=mask)
        memory = {"values": self.norm(values), "mask": mask}
        if "source_ids" in source:
            memory["source_ids"] = source["source_ids"]
        return memory

    def compute_output_shape(self, source_shape):
        batch, length = source_shape["token_ids"]
        shapes = {"values": (batch, length, self.embedding_dim), "mask": (batch, length)}
        if "source_ids" in source_shape:
            shapes["source_ids"] = (batch, length)
        return shapes

    def get_config(self):
        names = ("vocabulary_size", "embedding_dim", "num_layers", "num_heads", "hidden_dim", "dropout")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
