"""The Transformer encoder of texts."""

import keras
from keras import ops

from attention_apps.constants import PADDING
from attention_apps.layers.transformer_blocks import TransformerEncoderBlock
from attention_apps.models.transformer_stack import TransformerStack


@keras.saving.register_keras_serializable(package="attention_apps")
class TransformerEncoder(TransformerStack, keras.layers.Layer):
    """Embeds words, adds positions and runs Transformer blocks over them.

    Args:
        vocabulary_size: Number of words.
        embedding_dim: Width of embeddings and blocks.
        num_layers: Number of blocks.
        num_heads: Number of attention heads.
        hidden_dim: Width of the feed-forward networks.
        dropout: Dropout rate on embeddings and in the blocks.

    Call arguments:
        source: Dict of `token_ids` `(batch, source)`, padded with 0, and, for copying, `source_ids` of the same shape.

    Returns:
        The memory: `values` `(batch, source, embedding_dim)`, `mask` `(batch, source)`, and `source_ids` if given.

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
        self.vocabulary_size = vocabulary_size
        self.embedding_dim = embedding_dim
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        self._make_stack(TransformerEncoderBlock)

    def build(self, source_shape):
        self._build_stack()
        self.built = True

    def call(self, source):
        token_ids = source["token_ids"]
        mask = ops.not_equal(token_ids, PADDING)  # (B, S)
        values = self._embed(token_ids)  # (B, S, D)
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
