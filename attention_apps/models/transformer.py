"""The Transformer encoder of texts and the Transformer decoder, with a cache."""

import keras
from keras import ops

from attention_apps.constants import PADDING
from attention_apps.decoding.scorers import PER_ITEM
from attention_apps.layers.constructor_config import ConstructorConfig
from attention_apps.layers.transformer import (
    SinusoidalPositionEncoding,
    TransformerDecoderBlock,
    TransformerEncoderBlock,
)
from attention_apps.models.seq2seq import Decoder


class TransformerStack(ConstructorConfig):
    """What encoder and decoder share: embeddings with positions, a stack of blocks and a final norm.

    A mixin for a Keras layer with the attributes of the constructor of `TransformerEncoder`.
    """

    def _make_stack(self, block_class):
        """Create the children; `block_class` is one of the Transformer blocks."""
        if self.num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1. Received: num_layers={self.num_layers}")
        policy = self.dtype_policy
        self.embedding = keras.layers.Embedding(
            self.vocabulary_size, self.embedding_dim, dtype=policy, name="embedding"
        )
        self.position_encoding = SinusoidalPositionEncoding(dtype=policy, name="position_encoding")
        self.blocks = [
            block_class(
                self.num_heads,
                self.embedding_dim // self.num_heads,
                self.hidden_dim,
                dropout=self.dropout,
                dtype=policy,
                name=f"block_{index}",
            )
            for index in range(self.num_layers)
        ]
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, dtype=policy, name="norm")
        self.drop = keras.layers.Dropout(self.dropout, dtype=policy)

    def _build_stack(self, *value_shape):
        """Build the children; `value_shape` is the shape of the memory if the blocks attend to one."""
        if not self.embedding.built:
            self.embedding.build((None, None))
        shape = (None, None, self.embedding_dim)
        for block in self.blocks:
            block.build(shape, *value_shape)
        self.norm.build(shape)

    def _embed(self, token_ids, position=None):
        """Scale the embeddings by √dim, add positions and apply dropout: `(batch, time, embedding_dim)`."""
        embedded = self.embedding(token_ids) * self.embedding_dim**0.5
        return self.drop(self.position_encoding(embedded, position=position))


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


@keras.saving.register_keras_serializable(package="attention_apps")
class TransformerDecoder(TransformerStack, Decoder):
    """Transformer blocks that write a target while attending to a memory.

    Call it for teacher forcing; use `init_state` and `step` for a search, whose state is a cache of keys and values.
    Embeddings are scaled by √dim, get positions, and are tied to the output layer.

    Args:
        vocabulary_size: Number of words. Ids beyond it (copied words) are embedded as the unknown word.
        embedding_dim: Width of embeddings and blocks.
        num_layers: Number of blocks.
        num_heads: Number of attention heads.
        hidden_dim: Width of the feed-forward networks.
        max_length: Size of the cache of `step` if `init_state` is not told how many steps follow.
        dropout: Dropout rate on embeddings and in the blocks.

    Call arguments:
        tokens: `(batch, target)` or `(batch, targets, target)`, starting with the start token.
        memory: The encoder's dict: `values` `(batch, source, dim)`, `mask` `(batch, source)`.
        return_dict: Whether to return a dict instead of the logits.

    Returns:
        Logits `(batch, target, vocabulary)`; or a dict of `logits`, `attention` (the weights of the last block over
        the memory, `(batch, target, source)`), `features` of each step and an empty `attention_state`. They have a
        `targets` axis after the batch if the tokens have one.

    Example:

    >>> decoder = TransformerDecoder(100, 16, num_layers=2, num_heads=4, hidden_dim=32)
    >>> memory = {"values": keras.ops.ones((2, 5, 7)), "mask": keras.ops.ones((2, 5), "bool")}
    >>> decoder(keras.ops.ones((2, 3), "int32"), memory).shape
    TensorShape([2, 3, 100])

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need".
    """

    def __init__(
        self,
        vocabulary_size,
        embedding_dim,
        num_layers=2,
        num_heads=4,
        hidden_dim=1024,
        max_length=128,
        dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if embedding_dim % num_heads:
            raise ValueError(
                f"`embedding_dim` must be a multiple of `num_heads`={num_heads}. Received: {embedding_dim=}"
            )
        self.vocabulary_size = vocabulary_size
        self.embedding_dim = embedding_dim
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.max_length = max_length
        self.dropout = dropout
        self._make_stack(TransformerDecoderBlock)

    @property
    def attention(self):
        """The last block's attention over the memory."""
        return self.blocks[-1].cross_attention

    def build(self, tokens_shape, memory_shape):
        self._build_stack((None, None, memory_shape["values"][-1]))
        self.output_bias = self.add_weight(shape=(self.vocabulary_size,), initializer="zeros", name="output_bias")
        self.feature_dim = 2 * self.embedding_dim
        self.built = True

    def _teacher_force(self, tokens, memory, num_targets):
        outputs, _ = self._run(tokens, None, self._source(memory), [None] * self.num_layers)
        return outputs, {}

    def init_state(self, memory, max_length=None):
        """Return the state before the first step, with room for `max_length` steps."""
        source = self._source(memory)
        max_length = self.max_length if max_length is None else max_length
        return {
            PER_ITEM: source,
            "blocks": [block.init_state(source["values"], max_length) for block in self.blocks],
            "coverage": ops.zeros(ops.shape(source["values"])[:2], self.compute_dtype),
        }

    def step_with_attention(self, token, state):
        """Like `step`, but return a dict with `attention` and `features` next to the `logits`."""
        position = state["blocks"][0]["position"]
        outputs, blocks = self._run(token[:, None], position, state[PER_ITEM], state["blocks"])
        outputs = {name: tensor[:, 0] for name, tensor in outputs.items()}
        coverage = state["coverage"] + outputs["attention"]
        return outputs, {PER_ITEM: state[PER_ITEM], "blocks": blocks, "coverage": coverage}

    def _source(self, memory):
        values = memory["values"]
        source = {"values": values, "prepared": [block.prepare(values) for block in self.blocks]}
        return source if memory.get("mask") is None else {**source, "mask": memory["mask"]}

    def _run(self, tokens, position, source, caches):
        embedded = self._embed(self._known_ids(tokens), position)  # (B, T, D)
        hidden, weights, states = embedded, None, []
        for block, prepared, cache in zip(self.blocks, source["prepared"], caches, strict=True):
            hidden, weights, cache = block(
                hidden, source["values"], value_mask=source.get("mask"), prepared=prepared, state=cache
            )
            states.append(cache)
        hidden = self.norm(hidden)
        matrix = ops.cast(self.embedding.embeddings, self.compute_dtype)
        # One product for all positions: the gradient by `matrix` would otherwise be computed for each example.
        logits = ops.einsum("nd,vd->nv", ops.reshape(hidden, (-1, self.embedding_dim)), matrix)
        logits = ops.reshape(logits, (*ops.shape(hidden)[:2], self.vocabulary_size))
        logits = logits + ops.cast(self.output_bias, self.compute_dtype)
        features = ops.concatenate([hidden, embedded], axis=-1)
        return {"logits": logits, "attention": weights, "features": features}, states
