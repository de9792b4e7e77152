import math

import keras
from keras import ops


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
        return inputs + ops.cast(self._encode(positions, inputs.shape[-1]), inputs.dtype)

    def _encode(self, positions, dim):
        exponents = ops.arange((dim + 1) // 2, dtype="float32") * (-2 / dim * math.log(self.max_wavelength))
        angles = ops.expand_dims(positions, -1) * ops.exp(exponents)  # (..., T, D / 2)
        pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # (..., T, D / 2, 2)
        return ops.reshape(pairs, (*ops.shape(angles)[:-1], -1))[..., :dim]

    def get_config(self):
        return {**super().get_config(), "max_wavelength": self.max_wavelength}
