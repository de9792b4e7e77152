"""EfficientNet-Lite: an ImageNet network for small machines that returns a grid of features."""

import math

import keras

# Per stage: kernel size, stride of the first block, expansion, channels and blocks of EfficientNet-Lite0.
_STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
# Factors of channels and blocks. Stem, head and the number of blocks in the first and last stage are not scaled.
_FACTORS = {
    "efficientnet_lite0": (1.0, 1.0),
    "efficientnet_lite1": (1.0, 1.1),
    "efficientnet_lite2": (1.1, 1.2),
}
EFFICIENTNET_LITE_NAMES = tuple(_FACTORS)
_OUTPUTS = ("blocks", "head", "classes")


def efficientnet_lite(name, output="head", image_size=None, dtype=None):
    """Build an EfficientNet-Lite with random weights.

    Inverted residual blocks with ReLU6 and without squeeze-and-excitation. Padding is TensorFlow's "same", which the
    published weights need. Each side of the grid is a 32nd of the image's, rounded up.

    Args:
        name: `"efficientnet_lite0"`, `"efficientnet_lite1"` or `"efficientnet_lite2"`.
        output: Where the network ends: `"blocks"`, the grid `(batch, rows, columns, channels)` of the last
            block (320 channels, Lite2: 352); `"head"`, the grid after the convolution to 1280 channels;
            `"classes"`, the logits `(batch, 1000)` of the ImageNet classes.
        image_size: Side of the square images; any size if `None`.
        dtype: Dtype or dtype policy of the layers.

    Returns:
        A `keras.Model` of images `(batch, height, width, 3)`, normalized by `normalize_pixels`.

    Reference: Tan and Le 2019, "EfficientNet"; Google's EfficientNet-Lite of 2020.
    """
    if name not in _FACTORS:
        raise ValueError(f"`name` must be one of {list(_FACTORS)}. Received: name={name!r}")
    if output not in _OUTPUTS:
        raise ValueError(f"`output` must be one of {list(_OUTPUTS)}. Received: output={output!r}")
    images = keras.Input((image_size, image_size, 3), name="image")
    features = _convolve(images, 32, 3, "stem", dtype, strides=2)
    for index, block in enumerate(_blocks(name)):
        features = _inverted_residual(features, f"block{index}", dtype, **block)
    if output != "blocks":
        features = _convolve(features, 1280, 1, "head", dtype)
    if output == "classes":
        features = keras.layers.GlobalAveragePooling2D(dtype=dtype, name="pool")(features)
        features = keras.layers.Dense(1000, dtype=dtype, name="classes")(features)
    return keras.Model(images, features, name=name)


def normalize_pixels(images):
    """Scale pixels from 0..255 to the range that EfficientNet-Lite was trained on."""
    return (images - 127.0) / 128.0


def _blocks(name):
    """The arguments of each inverted residual block."""
    width, depth = _FACTORS[name]
    for stage, (kernel_size, strides, expansion, channels, repeats) in enumerate(_STAGES):
        is_scaled = 0 < stage < len(_STAGES) - 1
        # The nearest multiple of 8 that is at least 90 % of the scaled number.
        rounded = max(8, int(channels * width + 4) // 8 * 8)
        rounded = rounded + 8 if rounded < 0.9 * channels * width else rounded
        for repeat in range(math.ceil(repeats * depth) if is_scaled else repeats):
            yield {
                "channels": rounded,
                "kernel_size": kernel_size,
                "strides": 1 if repeat else strides,
                "expansion": expansion,
            }


def _inverted_residual(inputs, name, dtype, channels, kernel_size, strides, expansion):
    features = inputs
    if expansion > 1:
        features = _convolve(features, inputs.shape[-1] * expansion, 1, f"{name}_expand", dtype)
    features = _convolve(features, None, kernel_size, f"{name}_depthwise", dtype, strides=strides)
    features = _convolve(features, channels, 1, f"{name}_project", dtype, activation=False)
    if strides == 1 and inputs.shape[-1] == channels:
        features = keras.layers.Add(dtype=dtype, name=f"{name}_add")([features, inputs])
    return features


def _convolve(inputs, channels, kernel_size, name, dtype, strides=1, activation=True):
    """Convolution (depthwise if `channels` is `None`), batch normalization and ReLU6."""
    arguments = {
        "strides": strides,
        "padding": "same",
        "use_bias": False,
        "dtype": dtype,
        "name": f"{name}_conv",
    }
    if channels is None:
        features = keras.layers.DepthwiseConv2D(kernel_size, **arguments)(inputs)
    else:
        features = keras.layers.Conv2D(channels, kernel_size, **arguments)(inputs)
    features = keras.layers.BatchNormalization(epsilon=1e-3, dtype=dtype, name=f"{name}_norm")(features)
    return keras.layers.ReLU(6.0, dtype=dtype, name=f"{name}_relu")(features) if activation else features
