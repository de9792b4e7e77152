"""The Transformer decoder, with a cache."""

import keras
from keras import ops

from attention_apps.layers.transformer_blocks import TransformerDecoderBlock
from attention_apps.models.decoder import Decoder, repeat_for_targets
from attention_apps.models.transformer_stack import TransformerStack


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
        source = repeat_for_targets(self._source(memory), num_targets)
        outputs, _ = self._run(tokens, None, source, [None] * self.num_layers)
        return outputs, {}

    def init_state(self, memory, max_length=None):
        """The state before the first step, with room for `max_length` steps."""
        source = self._source(memory)
        max_length = self.max_length if max_length is None else max_length
        return {
            **source,
            "blocks": [block.init_state(source["values"], max_length) for block in self.blocks],
            "coverage": ops.zeros(ops.shape(source["values"])[:2], self.compute_dtype),
        }

    def step_with_attention(self, token, state):
        """Like `step`, but returns a dict with `attention` and `features` next to the `logits`."""
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
        embedded = self._embed(self._known_ids(tokens), position)  # (B, T, D)
        hidden, weights, states = embedded, None, []
        for block, prepared, cache in zip(self.blocks, source["prepared"], caches, strict=True):
            hidden, weights, cache = block(
                hidden, source["values"], value_mask=source.get("mask"), prepared=prepared, state=cache
            )
            states.append(cache)
        hidden = self.norm(hidden)
        matrix = ops.cast(self.embedding.embeddings, self.compute_dtype)
        logits = ops.matmul(hidden, ops.transpose(matrix)) + ops.cast(self.output_bias, self.compute_dtype)  # (B, T, V)
        features = ops.concatenate([hidden, embedded], axis=-1)
        return {"logits": logits, "attention": weights, "features": features}, states

    def get_config(self):
        return {**super().get_config(), "max_length": self.max_length}
