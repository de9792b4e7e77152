"""The convolutions that shorten a spectrogram for a listener."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="attention_apps")
class ConvolutionalFrontEnd(keras.layers.Layer):
    """Convolutions of 3 x 3 over time and frequency, each with stride 2, batch normalisation and ReLU.

    Padding is zero before each convolution, and counts nowhere in the statistics; every convolution pads one frame
    and one frequency on each side, however long the batch is. So what is heard in an utterance does not depend on the
    batch it comes in.

    Args:
        filters: number of filters of each convolution.
        units: width of what comes out, a linear projection of all filters and frequencies of a frame.
        num_layers: number of convolutions; each halves the time.

    Call arguments:
        features: `(batch, time, mels)`.
        mask: boolean `(batch, time)`.

    Returns:
        `(batch, ceil(time / 2^num_layers), units)`, zero where there is padding, and its mask.

    Reference:
        Amodei et al. 2016, "Deep Speech 2", section 3.4; Zhang et al. 2017, "Very Deep Convolutional Networks for
        End-to-End Speech Recognition", section 2.
    """

    def __init__(self, filters, units, num_layers=2, **kwargs):
        super().__init__(**kwargs)
        for name, size in (("filters", filters), ("units", units), ("num_layers", num_layers)):
            if size < 1:
                raise ValueError(f"`{name}` must be a positive integer. Received: {name}={size}")
        self.filters = filters
        self.units = units
        self.num_layers = num_layers
        policy, layers = self.dtype_policy, keras.layers
        self.convolutions = [
            layers.Conv2D(filters, 3, strides=2, use_bias=False, dtype=policy, name=f"convolution_{index}")
            for index in range(num_layers)
        ]
        self.norms = [
            layers.BatchNormalization(momentum=0.95, dtype=policy, name=f"norm_{index}") for index in range(num_layers)
        ]
        self.dense = layers.Dense(units, dtype=policy, name="projection")

    def build(self, features_shape):
        mels, channels = features_shape[-1], 1
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            convolution.build((None, None, None, channels))
            mels, channels = halved(mels), self.filters
            norm.build((None, None, mels, channels))
        self.dense.build((None, None, mels * channels))

    def call(self, features, mask, training=None):
        values = _without_padding(ops.expand_dims(features, -1), mask)  # (B, T, M, 1)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            values = convolution(ops.pad(values, ((0, 0), (1, 1), (1, 1), (0, 0))))
            mask = mask[:, ::2]
            everywhere = ops.broadcast_to(ops.expand_dims(mask, -1), ops.shape(values)[:-1])  # (B, T, M)
            values = _without_padding(ops.relu(norm(values, training=training, mask=everywhere)), mask)
        batch, time = ops.shape(values)[:2]
        values = ops.reshape(values, (batch, time, values.shape[2] * self.filters))
        return _without_padding(self.dense(values), mask), mask

    def compute_mask(self, features, mask=None):
        return None

    def get_config(self):
        names = ("filters", "units", "num_layers")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def halved(size):
    """The size of an axis after a stride of 2, `None` where it is unknown."""
    return None if size is None else (size + 1) // 2


def _without_padding(values, mask):
    mask = ops.reshape(mask, (*ops.shape(mask), *(1,) * (len(values.shape) - 2)))
    return values * ops.cast(mask, values.dtype)
