"""Layers that tell a Transformer the positions of its inputs."""

import math

import keras
import numpy as np
from keras import ops

from attention_apps.checks import require


@keras.saving.register_keras_serializable(package="attention_apps")
class SinusoidalPositionEncoding(keras.layers.Layer):
    """Adds sines and cosines of the position, with wavelengths from 2π to `max_wavelength` · 2π.

    Args:
        max_wavelength: The longest wavelength, divided by 2π.

    Call arguments:
        inputs: `(batch, time, dim)`.
        position: Integers `(batch,)`, the position of the first time step. Defaults to 0.

    Returns:
        `(batch, time, dim)`.

    Example:

    >>> encoded = SinusoidalPositionEncoding()(embedded)
    >>> encoded_step = SinusoidalPositionEncoding()(embedded_step, position=position)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    """

    def __init__(self, max_wavelength=10000, **kwargs):
        super().__init__(**kwargs)
        if max_wavelength <= 0:
            raise ValueError(f"`max_wavelength` must be positive. Received: max_wavelength={max_wavelength}")
        self.max_wavelength = max_wavelength
        self.supports_masking = True

    def build(self, inputs_shape, position_shape=None):
        if inputs_shape[-1] is None:
            raise ValueError(f"`inputs` must have a known last dimension. Received: inputs.shape={inputs_shape}")

    def call(self, inputs, position=None):
        positions = ops.arange(ops.shape(inputs)[1], dtype="float32")  # (T,)
        if position is not None:
            positions = ops.expand_dims(ops.cast(position, "float32"), 1) + positions  # (B, T)
        dim = inputs.shape[-1]
        exponents = ops.arange((dim + 1) // 2, dtype="float32") * (-2 / dim * math.log(self.max_wavelength))
        angles = ops.expand_dims(positions, -1) * ops.exp(exponents)  # (..., T, D / 2)
        pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # (..., T, D / 2, 2)
        encoding = ops.reshape(pairs, (*ops.shape(angles)[:-1], -1))[..., :dim]
        return inputs + ops.cast(encoding, inputs.dtype)

    def get_config(self):
        return {**super().get_config(), "max_wavelength": self.max_wavelength}


@keras.saving.register_keras_serializable(package="attention_apps")
class RotaryPosition(keras.layers.Layer):
    """Rotates pairs of features by an angle that grows with the position.

    The product of a rotated query and a rotated key depends on the distance of their positions only. Pair j, made of
    features j and `rotary_dim / 2` + j, turns by `position / max_wavelength^(2j / rotary_dim)`. (Other
    implementations pair neighbors. That is the same after reordering the columns of the projections.)

    Args:
        rotary_dim: Number of features that are rotated, an even number. The features after them stay as they are.
        max_wavelength: The longest wavelength, over 2π.

    Call arguments:
        inputs: `(batch, heads, time, dim)`.
        position: Integers `(batch,)`, the position of the first time step; by default 0.
        prepared: What `prepare` returned, for several inputs at the same positions.

    Returns:
        `(batch, heads, time, dim)`.

    Example:

    >>> rotary = RotaryPosition(32)
    >>> rotary(keras.ops.ones((2, 8, 5, 36))).shape
    TensorShape([2, 8, 5, 36])

    Reference:
        Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", eq. 34.
    """

    def __init__(self, rotary_dim, max_wavelength=10000, **kwargs):
        super().__init__(**kwargs)
        require(rotary_dim > 0 and rotary_dim % 2 == 0, "rotary_dim", "even and positive", rotary_dim)
        require(max_wavelength > 0, "max_wavelength", "positive", max_wavelength)
        self.rotary_dim = rotary_dim
        self.max_wavelength = max_wavelength

    def build(self, inputs_shape, position_shape=None):
        dim = inputs_shape[-1]
        if dim is None or dim < self.rotary_dim:
            raise ValueError(
                f"`inputs` must have at least `rotary_dim`={self.rotary_dim} features. "
                f"Received: inputs.shape={tuple(inputs_shape)}"
            )

    def prepare(self, length, dim, position=None):
        """Compute the cosines and sines of some positions.

        Args:
            length: Number of time steps.
            dim: Number of features of the inputs.
            position: Integers `(batch,)`, the position of the first time step; by default 0.

        Returns:
            Two tensors `(batch or 1, 1, length, dim)`.
        """
        positions = ops.expand_dims(ops.arange(length, dtype="float32"), 0)  # (1, T)
        if position is not None:
            positions = positions + ops.expand_dims(ops.cast(position, "float32"), 1)  # (B, T)
        # Angle per position of every feature; 0 for those that are not rotated.
        pairs = np.arange(dim) % (self.rotary_dim // 2)
        frequencies = self.max_wavelength ** (-2.0 * pairs / self.rotary_dim)
        frequencies = np.where(np.arange(dim) < self.rotary_dim, frequencies, 0.0).astype("float32")
        angles = positions[:, None, :, None] * frequencies  # (B, 1, T, D)
        signs = np.where(np.arange(dim) < self.rotary_dim // 2, -1.0, 1.0).astype("float32")
        return ops.cast(ops.cos(angles), self.compute_dtype), ops.cast(ops.sin(angles) * signs, self.compute_dtype)

    def call(self, inputs, position=None, prepared=None):
        cosines, sines = prepared or self.prepare(ops.shape(inputs)[2], inputs.shape[-1], position)
        half = self.rotary_dim // 2
        one, other, rest = ops.split(inputs, [half, self.rotary_dim], axis=-1)
        partners = ops.concatenate([other, one, rest], axis=-1)
        return inputs * cosines + partners * sines

    def get_config(self):
        return {**super().get_config(), "rotary_dim": self.rotary_dim, "max_wavelength": self.max_wavelength}
