"""The Transformer decoder, with a cache."""

import keras
from keras import ops

from attention_apps.layers.position_encoding import SinusoidalPositionEncoding
from attention_apps.layers.transformer_blocks import TransformerDecoderBlock
from attention_apps.models.tokens import embeddable, flat_targets, unflat_targets


@keras.saving.register_keras_serializable(package="attention_apps")
class TransformerDecoder(keras.layers.Layer):
    """Transformer blocks that write a target while attending to a memory.

    Keeps the decoder's contract: call it for teacher forcing, `init_state` and `step` for a search, whose state is a
    cache of keys and values. Embeddings are scaled by √dim, given positions, and tied to the output layer.

    Args:
        vocabulary_size: number of words. Ids beyond it (copied words) are embedded as the unknown word.
        embedding_dim: width of embeddings and blocks.
        num_layers: number of blocks.
        num_heads: number of attention heads.
        hidden_dim: width of the feed-forward networks.
        max_length: the longest target that `step` has room for in its cache.
        dropout: rate on embeddings and in the blocks.

    Call arguments:
        tokens: `(batch, time)` or `(batch, targets, time)`, beginning with the start token.
        memory: the encoder's dict: `values` `(batch, source, dim)`, `mask` `(batch, source)`.
        return_attention: whether the weights come back as well.

    Returns:
        Logits `(batch, time, vocabulary)`, and the last block's weights over the memory `(batch, time, source)` if
        asked for; with a `targets` axis after the batch where the tokens have one.

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
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1. Received: num_layers={num_layers}")
        self.vocabulary_size = vocabulary_size
        self.embedding_dim = embedding_dim
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.max_length = max_length
        self.dropout = dropout
        if embedding_dim % num_heads:
            raise ValueError(
                f"`embedding_dim` must be a multiple of `num_heads`={num_heads}. Received: {embedding_dim=}"
            )
        policy = self.dtype_policy
        self.embedding = keras.layers.Embedding(vocabulary_size, embedding_dim, dtype=policy, name="embedding")
        self.position_encoding = SinusoidalPositionEncoding(dtype=policy, name="position_encoding")
        self.blocks = [
            TransformerDecoderBlock(
                num_heads, embedding_dim // num_heads, hidden_dim, dropout=dropout, dtype=policy, name=f"block_{index}"
            )
            for index in range(num_layers)
        ]
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, dtype=policy, name="norm")
        self.drop = keras.layers.Dropout(dropout, dtype=policy)

    @property
    def attention(self):
        """The last block's attention over the memory."""
        return self.blocks[-1].cross_attention

    def share_embedding(self, embedding):
        """Uses a word embedding of an encoder in place of its own; to be called before anything is built."""
        wanted, given = (self.vocabulary_size, self.embedding_dim), (embedding.input_dim, embedding.output_dim)
        if wanted != given:
            raise ValueError(f"A shared embedding must be of shape {wanted}. Received: shape={given}")
        self.embedding = embedding

    def build(self, tokens_shape, memory_shape):
        if not self.embedding.built:
            self.embedding.build((None, None))
        shape = (None, None, self.embedding_dim)
        for block in self.blocks:
            block.build(shape, (None, None, memory_shape["values"][-1]))
        self.norm.build(shape)
        self.output_bias = self.add_weight(shape=(self.vocabulary_size,), initializer="zeros", name="output_bias")
        self.feature_dim = 2 * self.embedding_dim
        self.built = True

    def call(self, tokens, memory, return_attention=False):
        outputs = self.teacher_force(tokens, memory)
        return (outputs["logits"], outputs["attention"]) if return_attention else outputs["logits"]

    def teacher_force(self, tokens, memory):
        """All a loss can ask for: `logits`, `attention`, `features` of each step; there is no attention state."""
        tokens, targets = flat_targets(tokens)
        source = self._source(memory)
        if targets is not None:
            source = keras.tree.map_structure(lambda x: ops.repeat(x, targets, axis=0), source)
        outputs, _ = self._run(tokens, None, source, [None] * self.num_layers)
        outputs = {name: unflat_targets(tensor, targets) for name, tensor in outputs.items()}
        return {**outputs, "attention_state": {}}

    def init_state(self, memory):
        """The state before the first step."""
        source = self._source(memory)
        return {
            **source,
            "blocks": [block.init_state(source["values"], self.max_length) for block in self.blocks],
            "coverage": ops.zeros(ops.shape(source["values"])[:2], self.compute_dtype),
        }

    def step(self, token, state):
        """One token `(batch,)` and the state to logits `(batch, vocabulary)` and the next state."""
        outputs, state = self.step_in_full(token, state)
        return outputs["logits"], state

    def step_in_full(self, token, state):
        """As `step`, with `attention` and `features` next to the `logits`."""
        source = {name: state[name] for name in ("values", "mask", "prepared") if name in state}
        position = state["blocks"][0]["position"]
        outputs, blocks = self._run(token[:, None], position, source, state["blocks"])
        outputs = {name: tensor[:, 0] for name, tensor in outputs.items()}
        coverage = state["coverage"] + outputs["attention"]
        return outputs, {**source, "blocks": blocks, "coverage": coverage}

    def _source(self, memory):
        values = memory["values"]
        source = {"values": values, "prepared": [block.prepare(values) for block in self.blocks]}
        return source if memory.get("mask") is None else {**source, "mask": memory["mask"]}

    def _run(self, tokens, position, source, caches):
        embedded = self.embedding(embeddable(tokens, self.vocabulary_size)) * self.embedding_dim**0.5
        embedded = self.drop(self.position_encoding(embedded, position=position))
        hidden, weights, states = embedded, None, []
        for block, prepared, cache in zip(self.blocks, source["prepared"], caches, strict=True):
            hidden, weights, cache = block(
                hidden, source["values"], value_mask=source.get("mask"), prepared=prepared, state=cache
            )
            states.append(cache)
        hidden = self.norm(hidden)
        matrix = ops.cast(self.embedding.embeddings, self.compute_dtype)
        logits = ops.matmul(hidden, ops.transpose(matrix)) + ops.cast(self.output_bias, self.compute_dtype)
        features = ops.concatenate([hidden, embedded], axis=-1)
        return {"logits": logits, "attention": weights, "features": features}, states

    def get_config(self):
        names = ("vocabulary_size", "embedding_dim", "num_layers", "num_heads", "hidden_dim", "max_length", "dropout")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
