import keras
from keras import ops

from attention_apps.layers.recurrent import Recurrent


@keras.saving.register_keras_serializable(package="attention_apps")
class PyramidalBidirectionalLSTM(keras.layers.Layer):
    """Concatenates adjacent time steps and runs a bidirectional LSTM over the shorter sequence.

    h_i = BLSTM(h_{i-1}, [x_{2i}; x_{2i+1}]): with a factor of 2, each layer halves the time axis. A sequence that does
    not divide evenly is padded at its end. A joined step is real if any of its steps is; padding inside it is zeroed.

    Args:
        units: Width of one direction.
        factor: Number of steps that are joined into one.

    Call arguments:
        sequence: `(batch, time, dim)`.
        mask: Boolean `(batch, time)`, or `None`.

    Returns:
        The hidden states `(batch, ceil(time / factor), 2 * units)` and their mask.

    Example:

    >>> layer = PyramidalBidirectionalLSTM(4)
    >>> outputs, mask = layer(keras.ops.ones((2, 7, 5)), mask=keras.ops.ones((2, 7), "bool"))
    >>> outputs.shape, mask.shape
    (TensorShape([2, 4, 8]), TensorShape([2, 4]))

    Reference:
        Chan et al. 2016, "Listen, Attend and Spell", section 3.1, eq. 5.
    """

    def __init__(self, units, factor=2, **kwargs):
        super().__init__(**kwargs)
        if factor < 1:
            raise ValueError(f"`factor` must be a positive integer. Received: factor={factor}")
        self.units = units
        self.factor = factor
        self.recurrent = Recurrent(units, bidirectional=True, dtype=self.dtype_policy, name="recurrent")

    def build(self, sequence_shape):
        self.recurrent.build((None, None, self.factor * sequence_shape[-1]))

    def call(self, sequence, mask=None):
        mask = ops.ones(ops.shape(sequence)[:2], "bool") if mask is None else mask
        sequence = sequence * ops.cast(ops.expand_dims(mask, -1), sequence.dtype)
        batch, length, dim = ops.shape(sequence)
        steps = (length + self.factor - 1) // self.factor
        missing = steps * self.factor - length
        joined = ops.pad(sequence, [[0, 0], [0, missing], [0, 0]])
        joined = ops.reshape(joined, (batch, steps, self.factor * dim))  # (B, T / factor, factor · D)
        mask = ops.pad(ops.cast(mask, "int32"), [[0, 0], [0, missing]])
        mask = ops.any(ops.reshape(mask, (batch, steps, self.factor)) > 0, axis=-1)
        outputs, _ = self.recurrent(joined, mask=mask)
        return outputs, mask

    def compute_mask(self, sequence, mask=None):
        return None

    def get_config(self):
        return {**super().get_config(), "units": self.units, "factor": self.factor}
