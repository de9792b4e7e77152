"""Fine-tuning of a trained model: freezing parts of it, growing its vocabulary."""

import fnmatch
import re
from collections.abc import Iterator, Sequence

import keras
import numpy as np

from attention_apps.constants import UNKNOWN


def freeze(model: keras.Model, patterns: Sequence[str]) -> None:
    """Freeze the layers and weights whose paths match, including the statistics of their normalization.

    A path consists of the model's attribute and the names of layers and weights: `encoder`, `encoder/layer_0`,
    `decoder/embedding/embeddings`. `*` matches anything.
    """
    layers, weights = layer_paths(model), weight_paths(model)
    for pattern in patterns:
        found = [part for path, part in [*layers, *weights] if fnmatch.fnmatchcase(path, pattern)]
        if not found:
            known = ", ".join(path for path, _ in layers)
            raise ValueError(f"`freeze` matches nothing with {pattern!r}. Parts of the model: {known}")
        for part in found:
            part.trainable = False
    if patterns and not model.trainable_variables:
        raise ValueError(f"`freeze` leaves nothing to train. Received: freeze={list(patterns)}")


def layer_paths(model: keras.Model) -> list[tuple[str, keras.layers.Layer]]:
    """Return all layers of a model with their paths. A layer that is used in two places appears twice."""
    parts = [(name, getattr(model, name)) for name in ("encoder", "decoder")]
    return [pair for name, part in parts for pair in _walk(name, part)]


def weight_paths(model: keras.Model) -> list[tuple[str, keras.Variable]]:
    """Return all weights of a model with their paths."""
    paths = []
    for path, layer in layer_paths(model):
        below = {id(weight) for child in _children(layer) for weight in child.weights}
        own = [weight for weight in layer.weights if id(weight) not in below]
        paths += [(f"{path}/{_weight_name(weight, place)}", weight) for place, weight in enumerate(own)]
    return paths


def copy_grown_weights(old_model: keras.Model, new_model: keras.Model) -> None:
    """Copy the weights of a model into a model with a larger vocabulary that begins with the same words.

    In weights with an entry per word, new words are initialized with the entry of the unknown word.
    """
    old_weights, new_weights = weight_paths(old_model), weight_paths(new_model)
    if [path for path, _ in old_weights] != [path for path, _ in new_weights]:
        odd = sorted({path for path, _ in old_weights} ^ {path for path, _ in new_weights})
        raise ValueError(f"The models must differ in their vocabularies only. In one of them only: {', '.join(odd)}")
    for (path, old), (_, new) in zip(old_weights, new_weights, strict=True):
        new.assign(_grown(path, keras.ops.convert_to_numpy(old), tuple(new.shape)))


def _grown(path: str, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if array.shape == shape:
        return array
    axes = [axis for axis, sizes in enumerate(zip(array.shape, shape)) if sizes[0] != sizes[1]]
    if array.ndim != len(shape) or len(axes) != 1 or array.shape[axes[0]] > shape[axes[0]]:
        raise ValueError(f"A vocabulary can only grow. Received: {path} of shape {array.shape}, to become {shape}")
    unknown = np.take(array, [UNKNOWN], axis=axes[0])
    new_words = np.repeat(unknown, shape[axes[0]] - array.shape[axes[0]], axis=axes[0])
    return np.concatenate([array, new_words], axis=axes[0])


def _weight_name(weight: keras.Variable, place: int) -> str:
    """The name of a weight, or its index in the layer if Keras has generated the name from a global counter."""
    return f"variable_{place}" if re.fullmatch(r"variable(_\d+)?", weight.name) else weight.name


def _walk(path: str, layer: keras.layers.Layer) -> Iterator[tuple[str, keras.layers.Layer]]:
    yield path, layer
    for child in _children(layer):
        yield from _walk(f"{path}/{child.name}", child)


def _children(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    return list(layer._flatten_layers(include_self=False, recursive=False))
