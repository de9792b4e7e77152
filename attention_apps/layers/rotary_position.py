import keras
import numpy as np
from keras import ops

from attention_apps.checks import require


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
        """Computes the cosines and sines of some positions.

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
        angles = positions[:, None, :, None] * self._frequencies(dim)  # (B, 1, T, D)
        signs = np.where(np.arange(dim) < self.rotary_dim // 2, -1.0, 1.0).astype("float32")
        return ops.cast(ops.cos(angles), self.compute_dtype), ops.cast(ops.sin(angles) * signs, self.compute_dtype)

    def call(self, inputs, position=None, prepared=None):
        cosines, sines = prepared or self.prepare(ops.shape(inputs)[2], inputs.shape[-1], position)
        half = self.rotary_dim // 2
        one, other, rest = ops.split(inputs, [half, self.rotary_dim], axis=-1)
        partners = ops.concatenate([other, one, rest], axis=-1)
        return inputs * cosines + partners * sines

    def _frequencies(self, dim):
        """Angle per position of every feature; 0 for those that are not rotated."""
        pairs = np.arange(dim) % (self.rotary_dim // 2)
        frequencies = self.max_wavelength ** (-2.0 * pairs / self.rotary_dim)
        return np.where(np.arange(dim) < self.rotary_dim, frequencies, 0.0).astype("float32")

    def get_config(self):
        return {**super().get_config(), "rotary_dim": self.rotary_dim, "max_wavelength": self.max_wavelength}
