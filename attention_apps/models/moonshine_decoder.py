"""Moonshine's decoder, with a cache."""

import keras
from keras import ops

from attention_apps.checks import require
from attention_apps.constants import END, VERY_NEGATIVE
from attention_apps.layers.constructor_config import ConstructorConfig
from attention_apps.layers.sequence_ops import causal_mask
from attention_apps.layers.transformer import RotaryPosition
from attention_apps.models.moonshine_encoder import RotarySelfAttention, attend, dense, join_heads, layer_norm
from attention_apps.models.seq2seq import Decoder, flatten_targets, unflatten_targets


@keras.saving.register_keras_serializable(package="attention_apps")
class MoonshineDecoder(ConstructorConfig, Decoder):
    """Transformer blocks with rotary positions that write sub-words while attending to a memory.

    Keeps the decoder's contract: call it for teacher forcing, `init_state` and `step` for a search. The state holds
    the keys and values of the target so far and those of the memory.

    `step` gives every token but the end a score of minus infinity as soon as an item has as many tokens as its
    recording can hold. Without that limit the model may repeat itself. Teacher forcing has no such limit.

    Args:
        vocabulary_size: number of sub-words.
        dim: width of embeddings and blocks.
        num_layers: number of blocks.
        num_heads: number of attention heads; a divisor of `dim`.
        hidden_dim: width of the feed-forward networks, after the gate.
        rotary_dim: number of features of each head that are rotated.
        max_length: the longest target, without start and end.
        max_tokens_per_frame: the limit of a recording, in tokens per frame of the memory; `None` for none.
        alignment_heads: pairs of block and head whose weights are averaged to `attention`; by default all heads of
            the last block.
        dropout: rate on embeddings and in the blocks.

    Call arguments:
        tokens: `(batch, time)` or `(batch, targets, time)`, beginning with the start token.
        memory: the encoder's dict: `values` `(batch, source, dim)`, `mask` `(batch, source)`.
        return_dict: whether attention weights come back as well.

    Returns:
        Logits `(batch, time, vocabulary)`. With `return_dict` a dict of `logits`, `attention`
        `(batch, time, source)` and `head_attention` `(batch, blocks, heads, time, source)`. There is a `targets` axis
        after the batch where the tokens have one.

    Example:

    >>> decoder = MoonshineDecoder(100, dim=16, num_layers=1, num_heads=2, hidden_dim=32, rotary_dim=6)
    >>> memory = {"values": keras.ops.ones((2, 5, 7)), "mask": keras.ops.ones((2, 5), "bool")}
    >>> decoder(keras.ops.ones((2, 3), "int32"), memory).shape
    TensorShape([2, 3, 100])

    Reference:
        Jeffries et al. 2024, "Moonshine: Speech Recognition for Live Transcription and Voice Commands", section 3.
    """

    def __init__(
        self,
        vocabulary_size,
        dim=288,
        num_layers=6,
        num_heads=8,
        hidden_dim=1152,
        rotary_dim=32,
        max_length=194,
        max_tokens_per_frame=None,
        alignment_heads=None,
        dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        require(dim % num_heads == 0, "dim", f"a multiple of `num_heads`={num_heads}", dim)
        require(num_layers >= 1, "num_layers", "at least 1", num_layers)
        self.vocabulary_size = vocabulary_size
        self.dim = dim
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.rotary_dim = rotary_dim
        self.max_length = max_length
        self.max_tokens_per_frame = max_tokens_per_frame
        last_heads = [(num_layers - 1, head) for head in range(num_heads)]
        self.alignment_heads = [list(pair) for pair in alignment_heads or last_heads]
        exist = all(0 <= block < num_layers and 0 <= head < num_heads for block, head in self.alignment_heads)
        require(exist, "alignment_heads", f"pairs below ({num_layers}, {num_heads})", alignment_heads)
        self.dropout = dropout
        policy = self.dtype_policy
        self.rotary = RotaryPosition(rotary_dim, dtype=policy, name="rotary")
        self.blocks = [
            MoonshineDecoderBlock(num_heads, hidden_dim, self.rotary, dropout, dtype=policy, name=f"block_{index}")
            for index in range(num_layers)
        ]
        self.norm = layer_norm(self, "norm")
        self.drop = keras.layers.Dropout(dropout, dtype=policy)

    def build(self, tokens_shape, memory_shape):
        # The vocabulary is the last axis: every step multiplies by this matrix, and this is the faster order.
        shape = (self.dim, self.vocabulary_size)
        self.embedding = self.add_weight(shape=shape, initializer="random_normal", name="embedding")
        for block in self.blocks:
            block.build((None, self.dim), memory_shape["values"][-1])
        self.norm.build((None, self.dim))
        self.rotary.build((None, None, None, self.dim // self.num_heads))
        self.built = True

    def call(self, tokens, memory, return_dict=False):
        tokens, targets = flatten_targets(tokens)
        source, time = self._prepare(memory), ops.shape(tokens)[1]
        rotation = self.rotary.prepare(time, self.dim // self.num_heads)
        logits, weights, _ = self._run(tokens, rotation, causal_mask(time), source, [None] * self.num_layers)
        logits = ops.reshape(logits, (-1, time, self.vocabulary_size))
        if not return_dict:
            return unflatten_targets(logits, targets)
        attention, heads = self._attention_of(weights, time)
        outputs = {"logits": logits, "attention": attention, "head_attention": heads}
        return {name: unflatten_targets(tensor, targets) for name, tensor in outputs.items()}

    def init_state(self, memory, max_length=None):
        """The state before the first step, with room for `max_length` steps.

        Hypotheses of an item share what is below `per_item`.
        """
        source = self._prepare(memory)
        batch, frames = ops.shape(memory["values"])[:2]
        capacity = self._limit(frames) + 1
        if max_length is not None:
            capacity = min(capacity, max_length) if isinstance(capacity, int) else ops.minimum(capacity, max_length)
        shape = (batch, self.num_heads, capacity, self.dim // self.num_heads)
        # Each cache is a tensor of its own, so that it can be written in place.
        caches = [
            {name: ops.zeros(shape, self.compute_dtype) for name in ("keys", "values")} for _ in range(self.num_layers)
        ]
        limit = self._limit(ops.sum(ops.cast(source["mask"][:, 0, 0], "int32"), axis=1))
        return {"per_item": source, "caches": caches, "limit": limit, "position": ops.zeros((batch,), "int32")}

    def step_with_attention(self, token, state):
        """Like `step`, but return a dict of `logits` and `attention` `(batch, source)`."""
        source, caches, position = state["per_item"], state["caches"], state["position"]
        capacity = ops.shape(caches[0]["keys"])[2]
        place = ops.minimum(position, capacity - 1)
        first_rows = ops.arange(ops.shape(token)[0] * self.num_heads) * capacity
        places = ops.reshape(first_rows, (-1, self.num_heads)) + ops.expand_dims(place, 1)  # (B, H)
        mask = (ops.arange(capacity) <= ops.expand_dims(place, 1))[:, None, None, :]
        rotation = self.rotary.prepare(1, self.dim // self.num_heads, position)
        logits, weights, caches = self._run(
            ops.expand_dims(token, 1), rotation, mask, source, caches, places=ops.reshape(places, (-1, 1))
        )
        # At the limit, only the end token may follow.
        is_over = ops.expand_dims(ops.cast(position >= state["limit"], "float32"), 1)
        penalties = is_over * ops.where(ops.arange(self.vocabulary_size) == END, 0.0, VERY_NEGATIVE)
        outputs = {
            "logits": ops.cast(logits, "float32") + penalties,
            "attention": self._attention_of(weights, 1)[0][:, 0],
        }
        return outputs, {**state, "caches": caches, "position": position + 1}

    def _prepare(self, memory):
        """What depends on the memory only: its mask, and each block's keys and values."""
        values, mask = memory["values"], memory.get("mask")
        mask = ops.ones(ops.shape(values)[:2], "bool") if mask is None else mask
        values = ops.where(mask[..., None], values, 0)  # attention to nothing but padding has a context of zeros
        blocks = [block.cross_attention.prepare(values) for block in self.blocks]
        return {"mask": mask[:, None, None, :], "blocks": blocks}

    def _limit(self, frames):
        """The largest number of tokens, without the end, that `step` writes for a number of frames."""
        if self.max_tokens_per_frame is None:
            return self.max_length if isinstance(frames, int) else ops.zeros_like(frames) + self.max_length
        if isinstance(frames, int):
            return min(int(frames * self.max_tokens_per_frame), self.max_length)
        return ops.minimum(ops.cast(ops.cast(frames, "float32") * self.max_tokens_per_frame, "int32"), self.max_length)

    def _run(self, tokens, rotation, mask, source, caches, places=None):
        """Logits `(batch · time, vocabulary)`, each block's weights over the memory, and the caches."""
        embedding = ops.cast(self.embedding, self.compute_dtype)
        hidden = self.drop(ops.transpose(ops.take(embedding, ops.reshape(tokens, (-1,)), axis=1)))
        all_weights, new_caches = [], []
        for block, prepared, cache in zip(self.blocks, source["blocks"], caches, strict=True):
            hidden, weights, cache = block(hidden, rotation, mask, prepared, source["mask"], cache=cache, places=places)
            all_weights.append(weights)
            new_caches.append(cache)
        return ops.matmul(self.norm(hidden), embedding), all_weights, new_caches

    def _attention_of(self, weights, time):
        """Average the attention `(batch · targets, time, source)`, and return that of each head too.

        The weights of each block are `(batch, heads, targets · time, source)`, those of the heads `(batch · targets,
        blocks, heads, time, source)`. The attention is the average of the heads that follow the recording.
        """
        weights = ops.stack(weights, axis=1)  # (B, L, H, N T, S)
        shape = (ops.shape(weights)[0], self.num_layers, self.num_heads, -1, time, ops.shape(weights)[-1])
        weights = ops.transpose(ops.reshape(weights, shape), (0, 3, 1, 2, 4, 5))
        heads = ops.reshape(weights, (-1, *ops.shape(weights)[2:]))
        chosen = [heads[:, block, head] for block, head in self.alignment_heads]
        return sum(chosen[1:], chosen[0]) / len(chosen), heads


class MoonshineDecoderBlock(keras.layers.Layer):
    """Causal self-attention, cross-attention and a gated feed-forward network, each normalized and with a residual."""

    def __init__(self, num_heads, hidden_dim, rotary, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        policy = self.dtype_policy
        self.hidden_dim = hidden_dim
        self.self_norm = layer_norm(self, "self_norm")
        self.self_attention = RotarySelfAttention(num_heads, rotary, dtype=policy, name="self_attention")
        self.cross_norm = layer_norm(self, "cross_norm")
        self.cross_attention = CrossAttention(num_heads, dtype=policy, name="cross_attention")
        self.feed_forward_norm = layer_norm(self, "feed_forward_norm")
        self.up = keras.layers.Dense(2 * hidden_dim, dtype=policy, name="up")
        self.drop = keras.layers.Dropout(dropout, dtype=policy)

    def build(self, hidden_shape, value_dim):
        self.down = keras.layers.Dense(hidden_shape[-1], dtype=self.dtype_policy, name="down")
        for layer in (self.self_norm, self.self_attention, self.cross_norm, self.feed_forward_norm, self.up):
            layer.build(hidden_shape)
        self.cross_attention.build(hidden_shape, value_dim)
        self.down.build((None, self.hidden_dim))

    def call(self, hidden, rotation, mask, prepared, memory_mask, cache=None, places=None):
        context, cache = self.self_attention(self.self_norm(hidden), rotation, mask, cache=cache, places=places)
        hidden = hidden + self.drop(context)
        context, weights = self.cross_attention(self.cross_norm(hidden), prepared, memory_mask)
        hidden = hidden + self.drop(context)
        inner, gate = ops.split(self.up(self.feed_forward_norm(hidden)), 2, axis=-1)
        return hidden + self.drop(self.down(inner * ops.silu(gate))), weights, cache


class CrossAttention(keras.layers.Layer):
    """Attention over the memory, with the weights of each head.

    Keys and values are computed once per item by `prepare`. Several hypotheses or targets of an item share them.

    Args:
        num_heads: number of heads.

    Call arguments:
        hidden: `(rows · time, dim)`, where an item has one or more rows side by side.
        prepared: what `prepare` returned.
        mask: boolean `(batch, 1, 1, source)`.

    Returns:
        The context `(rows · time, dim)` and the weights `(batch, heads, rows / batch · time, source)`.
    """

    def __init__(self, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads

    def build(self, hidden_shape, value_dim):
        dim = hidden_shape[-1]
        self.key_dim = dim // self.num_heads
        self.query_dense = dense(self, dim, "query")
        self.key_value = dense(self, 2 * dim, "key_value")
        self.output_dense = dense(self, dim, "output")
        self.query_dense.build((None, dim))
        self.key_value.build((None, None, value_dim))
        self.output_dense.build((None, dim))

    def prepare(self, value):
        """Scaled keys `(batch, heads, dim, source)` and values `(batch, heads, source, dim)` of a memory."""
        shape = (*ops.shape(value)[:2], 2, self.num_heads, self.key_dim)
        projected = ops.reshape(self.key_value(value), shape)  # (B, S, 2, H, D)
        keys = ops.transpose(projected[:, :, 0], (0, 2, 3, 1)) * self.key_dim**-0.5
        return {"keys": keys, "values": ops.transpose(projected[:, :, 1], (0, 2, 1, 3))}

    def call(self, hidden, prepared, mask):
        items = ops.shape(prepared["keys"])[0]
        query = ops.reshape(self.query_dense(hidden), (items, -1, self.num_heads, self.key_dim))  # (B, N T, H, D)
        context, weights = attend(ops.transpose(query, (0, 2, 1, 3)), prepared["keys"], prepared["values"], mask)
        return self.output_dense(join_heads(context)), weights
