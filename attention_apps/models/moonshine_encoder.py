"""Moonshine's encoder, from the waveform to the memory, and the parts that its decoder shares.

Inside the blocks, hidden states are `(batch · time, dim)`, so that dense layers and norms are plain matrix operations:
with a time axis of 1, reshaping would take as long as computing.
"""

import keras
from keras import ops

from attention_apps.checks import require
from attention_apps.constants import VERY_NEGATIVE
from attention_apps.layers.constructor_config import ConstructorConfig
from attention_apps.layers.sequence_ops import length_mask
from attention_apps.layers.transformer import RotaryPosition

# Kernel size and stride of the three convolutions, which have no padding.
_CONVOLUTIONS = ((127, 64), (7, 3), (3, 2))
SAMPLES_PER_FRAME = 384
# The samples that a frame sees. Frame i begins at sample i * SAMPLES_PER_FRAME; shorter recordings have no frame.
MIN_SAMPLES = 895


@keras.saving.register_keras_serializable(package="attention_apps")
class MoonshineEncoder(ConstructorConfig, keras.layers.Layer):
    """Convolutions on the waveform, then Transformer blocks with rotary positions.

    The output has 41.7 frames a second for audio of 16 kHz. Padding changes nothing: the statistics of the group
    norm and the attention leave it out, so that a batch gives the same values as its items alone.

    Args:
        dim: width of the blocks.
        num_layers: number of blocks.
        num_heads: number of attention heads; a divisor of `dim`.
        hidden_dim: width of the feed-forward networks.
        rotary_dim: number of features of each head that are rotated.
        dropout: rate in the blocks.

    Call arguments:
        source: dict of `waveform` `(batch, samples)`, 16 kHz, from -1 to 1, and `lengths`, int32 `(batch,)`, the
            number of real samples. Without lengths all samples are real.

    Returns:
        The memory: `values` `(batch, frames, dim)` and `mask` `(batch, frames)`.

    Example:

    >>> encoder = MoonshineEncoder(dim=16, num_layers=1, num_heads=2, hidden_dim=32, rotary_dim=6)
    >>> encoder({"waveform": keras.ops.zeros((1, 16000))})["values"].shape
    TensorShape([1, 40, 16])

    Reference:
        Jeffries et al. 2024, "Moonshine: Speech Recognition for Live Transcription and Voice Commands", section 3.
    """

    def __init__(self, dim=288, num_layers=6, num_heads=8, hidden_dim=1152, rotary_dim=32, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        require(dim % num_heads == 0, "dim", f"a multiple of `num_heads`={num_heads}", dim)
        require(rotary_dim <= dim // num_heads, "rotary_dim", f"at most {dim // num_heads}", rotary_dim)
        self.dim = dim
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.rotary_dim = rotary_dim
        self.dropout = dropout
        policy = self.dtype_policy
        self.convolutions = [
            keras.layers.Conv1D(filters, size, strides=stride, use_bias=index > 0, dtype=policy, name=f"conv_{index}")
            for index, (filters, (size, stride)) in enumerate(zip((dim, 2 * dim, dim), _CONVOLUTIONS, strict=True))
        ]
        self.rotary = RotaryPosition(rotary_dim, dtype=policy, name="rotary")
        self.blocks = [
            MoonshineEncoderBlock(num_heads, hidden_dim, self.rotary, dropout, dtype=policy, name=f"block_{index}")
            for index in range(num_layers)
        ]
        self.norm = layer_norm(self, "norm")

    def build(self, source_shape):
        for convolution, channels in zip(self.convolutions, (1, self.dim, 2 * self.dim), strict=True):
            convolution.build((None, None, channels))
        self.group_scale = self.add_weight(shape=(self.dim,), initializer="ones", name="group_scale")
        self.group_offset = self.add_weight(shape=(self.dim,), initializer="zeros", name="group_offset")
        for layer in (*self.blocks, self.norm):
            layer.build((None, self.dim))
        self.rotary.build((None, None, None, self.dim // self.num_heads))
        self.built = True

    def call(self, source):
        waveform = ops.cast(source["waveform"], self.compute_dtype)
        lengths = source.get("lengths")
        if lengths is None:
            lengths = ops.full(ops.shape(waveform)[:1], ops.shape(waveform)[1], "int32")
        first, second, third = self.convolutions
        values = ops.tanh(first(ops.expand_dims(waveform, -1)))
        values = self._group_norm(values, length_mask(num_frames(lengths, layers=1), ops.shape(values)[1]))
        values = ops.gelu(second(values), approximate=False)
        values = ops.gelu(third(values), approximate=False)  # (B, S, D)
        mask = length_mask(num_frames(lengths), ops.shape(values)[1])
        return {"values": self._transform(values, mask), "mask": mask}

    def _group_norm(self, values, mask):
        """Group norm with one group, over the features of all real frames."""
        dtype, values = values.dtype, ops.cast(values, "float32")
        real = ops.cast(mask, "float32")[:, :, None]
        count = ops.maximum(ops.sum(real, axis=(1, 2), keepdims=True), 1.0) * self.dim
        centered = values - ops.sum(values * real, axis=(1, 2), keepdims=True) / count
        variance = ops.sum(ops.square(centered) * real, axis=(1, 2), keepdims=True) / count
        scale, offset = (ops.cast(weight, "float32") for weight in (self.group_scale, self.group_offset))
        return ops.cast(centered * ops.rsqrt(variance + 1e-5) * scale + offset, dtype)

    def _transform(self, values, mask):
        shape = ops.shape(values)
        rotation = self.rotary.prepare(shape[1], self.dim // self.num_heads)
        hidden = ops.reshape(values, (-1, self.dim))
        for block in self.blocks:
            hidden = block(hidden, rotation, mask[:, None, None, :])
        return ops.reshape(self.norm(hidden), shape)

    def compute_output_shape(self, source_shape):
        batch, samples = source_shape["waveform"]
        frames = None if samples is None else num_frames(samples)
        return {"values": (batch, frames, self.dim), "mask": (batch, frames)}


def num_frames(samples, layers=3):
    """Number of frames after the first convolutions, of an integer or of a tensor of integers."""
    for size, stride in _CONVOLUTIONS[:layers]:
        samples = (samples - size) // stride + 1
    return max(samples, 0) if isinstance(samples, int) else ops.maximum(samples, 0)


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
        self.query_key_value = dense(self, 3 * dim, "query_key_value")
        self.output_dense = dense(self, dim, "output")
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
        return self.output_dense(join_heads(context)), cache


def attend(query, keys, values, mask):
    """Scaled dot-product attention of `(batch, heads, time, dim)`, with keys `(batch, heads, dim, source)`."""
    # Adding is faster than selecting, and the numbers to add are the same in all blocks, so a graph has them once.
    scores = ops.cast(ops.matmul(query, keys), "float32") + ops.where(mask, 0.0, VERY_NEGATIVE)
    weights = ops.cast(ops.softmax(scores, axis=-1), values.dtype)
    return ops.matmul(weights, values), weights


def layer_norm(layer, name):
    """A layer norm that scales and does not shift."""
    return keras.layers.LayerNormalization(epsilon=1e-5, center=False, dtype=layer.dtype_policy, name=name)


def dense(layer, units, name):
    return keras.layers.Dense(units, use_bias=False, dtype=layer.dtype_policy, name=name)


def join_heads(context):
    """`(batch, heads, time, dim)` to `(batch · time, heads · dim)`."""
    heads, dim = context.shape[1], context.shape[3]
    context = context if context.shape[2] == 1 else ops.transpose(context, (0, 2, 1, 3))
    return ops.reshape(context, (-1, heads * dim))


def _write(cache, new, places):
    """Write one time step `(batch, heads, 1, dim)` into a cache `(batch, heads, max_length, dim)`."""
    dim = new.shape[-1]
    flat = ops.scatter_update(ops.reshape(cache, (-1, dim)), places, ops.reshape(new, (-1, dim)))
    return ops.reshape(flat, ops.shape(cache))
