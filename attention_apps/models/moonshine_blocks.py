"""The Transformer blocks of Moonshine.

Hidden states are `(batch · time, dim)` here, so that dense layers and norms are plain matrix operations: with a
time axis of 1, reshaping would take as long as computing.
"""

import keras
from keras import ops

from attention_apps.constants import VERY_NEGATIVE


class RotarySelfAttention(keras.layers.Layer):
    """Self-attention whose queries and keys are rotated by their positions.

    Args:
        num_heads: number of heads.
        rotary: a `RotaryPosition` layer, which all blocks share.

    Call arguments:
        hidden: `(batch · time, dim)`.
        rotation: the prepared cosines and sines of the positions.
        mask: boolean, broadcastable to `(batch, heads, time, source)`; true where a position may be attended to.
        cache: dict of `keys` and `values`, `(batch, heads, max_length, dim / heads)`, for one step at a time.
        places: int32 `(batch · heads, 1)`, the row of the flattened cache in which each head writes.

    Returns:
        The context `(batch · time, dim)` and the cache.
    """

    def __init__(self, num_heads, rotary, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.rotary = rotary

    def build(self, hidden_shape):
        dim = hidden_shape[-1]
        self.key_dim = dim // self.num_heads
        self.query_key_value = _dense(self, 3 * dim, "query_key_value")
        self.output_dense = _dense(self, dim, "output")
        self.query_key_value.build((None, dim))
        self.output_dense.build((None, dim))

    def call(self, hidden, rotation, mask, cache=None, places=None):
        heads, time = self.num_heads, 1 if cache else ops.shape(rotation[0])[2]
        projected = ops.reshape(self.query_key_value(hidden), (-1, time, 3 * heads, self.key_dim))
        projected = ops.swapaxes(projected, 1, 2)  # (B, 3 H, T, D)
        rotated, values = self.rotary(projected[:, : 2 * heads], prepared=rotation), projected[:, 2 * heads :]
        query, keys = rotated[:, :heads], rotated[:, heads:]
        if cache:
            cache = {"keys": _write(cache["keys"], keys, places), "values": _write(cache["values"], values, places)}
            keys, values = cache["keys"], cache["values"]
        context, _ = attend(query * self.key_dim**-0.5, ops.swapaxes(keys, 2, 3), values, mask)
        return self.output_dense(_join_heads(context)), cache


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
        self.query_dense = _dense(self, dim, "query")
        self.key_value = _dense(self, 2 * dim, "key_value")
        self.output_dense = _dense(self, dim, "output")
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
        return self.output_dense(_join_heads(context)), weights


class MoonshineEncoderBlock(keras.layers.Layer):
    """Self-attention and a feed-forward network, each with a normalized input and a residual around it."""

    def __init__(self, num_heads, hidden_dim, rotary, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        policy = self.dtype_policy
        self.hidden_dim = hidden_dim
        self.attention_norm = layer_norm(self, "attention_norm")
        self.attention = RotarySelfAttention(num_heads, rotary, dtype=policy, name="attention")
        self.feed_forward_norm = layer_norm(self, "feed_forward_norm")
        self.up = keras.layers.Dense(hidden_dim, dtype=policy, name="up")
        self.drop = keras.layers.Dropout(dropout, dtype=policy)

    def build(self, hidden_shape):
        self.down = keras.layers.Dense(hidden_shape[-1], dtype=self.dtype_policy, name="down")
        for layer in (self.attention_norm, self.attention, self.feed_forward_norm, self.up):
            layer.build(hidden_shape)
        self.down.build((None, self.hidden_dim))

    def call(self, hidden, rotation, mask):
        context, _ = self.attention(self.attention_norm(hidden), rotation, mask)
        hidden = hidden + self.drop(context)
        inner = ops.gelu(self.up(self.feed_forward_norm(hidden)), approximate=False)
        return hidden + self.drop(self.down(inner))


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


def attend(query, keys, values, mask):
    """Scaled dot-product attention of `(batch, heads, time, dim)`, with keys `(batch, heads, dim, source)`."""
    # Adding is faster than selecting, and the numbers to add are the same in all blocks, so a graph has them once.
    scores = ops.cast(ops.matmul(query, keys), "float32") + ops.where(mask, 0.0, VERY_NEGATIVE)
    weights = ops.cast(ops.softmax(scores, axis=-1), values.dtype)
    return ops.matmul(weights, values), weights


def layer_norm(layer, name):
    """A layer norm that scales and does not shift."""
    return keras.layers.LayerNormalization(epsilon=1e-5, center=False, dtype=layer.dtype_policy, name=name)


def _dense(layer, units, name):
    return keras.layers.Dense(units, use_bias=False, dtype=layer.dtype_policy, name=name)


def _join_heads(context):
    """`(batch, heads, time, dim)` to `(batch · time, heads · dim)`."""
    heads, dim = context.shape[1], context.shape[3]
    context = context if context.shape[2] == 1 else ops.transpose(context, (0, 2, 1, 3))
    return ops.reshape(context, (-1, heads * dim))


def _write(cache, new, places):
    """Writes one time step `(batch, heads, 1, dim)` into a cache `(batch, heads, max_length, dim)`."""
    dim = new.shape[-1]
    flat = ops.scatter_update(ops.reshape(cache, (-1, dim)), places, ops.reshape(new, (-1, dim)))
    return ops.reshape(flat, ops.shape(cache))
