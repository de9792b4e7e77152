"""Moonshine's encoder: from the waveform to the memory."""

import keras
from keras import ops

from attention_apps.checks import require
from attention_apps.layers.masks import length_mask
from attention_apps.layers.rotary_position import RotaryPosition
from attention_apps.models.moonshine_blocks import MoonshineEncoderBlock, layer_norm

# Kernel size and stride of the three convolutions, which have no padding.
_CONVOLUTIONS = ((127, 64), (7, 3), (3, 2))
SAMPLES_PER_FRAME = 384
# The samples that a frame sees. Frame i begins at sample i * SAMPLES_PER_FRAME; shorter recordings have no frame.
MIN_SAMPLES = 895


@keras.saving.register_keras_serializable(package="attention_apps")
class MoonshineEncoder(keras.layers.Layer):
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

    def get_config(self):
        names = ("dim", "num_layers", "num_heads", "hidden_dim", "rotary_dim", "dropout")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def num_frames(samples, layers=3):
    """Number of frames after the first convolutions, of an integer or of a tensor of integers."""
    for size, stride in _CONVOLUTIONS[:layers]:
        samples = (samples - size) // stride + 1
    return max(samples, 0) if isinstance(samples, int) else ops.maximum(samples, 0)
