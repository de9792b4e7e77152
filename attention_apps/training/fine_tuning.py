"""Fine-tuning of a trained model: settings that fit the data, and its weights by path: freeze, grow, load."""

import fnmatch
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import keras
import numpy as np

from attention_apps.constants import UNKNOWN
from attention_apps.data.batches import Batches
from attention_apps.training.config import SelfCriticalConfig, TrainingConfig

# The rule behind "auto"; `scale_to_data` explains it.
MIN_EPOCHS, MAX_EPOCHS, EPOCHS_TIMES_ROOT = 3, 30, 300
WARMUP_FRACTION = AVERAGED_FRACTION = 0.1
MAX_EMA = 0.999
NUM_VALIDATIONS = 10
# Without validation data, this fraction of the examples is held out, unless they are too few to measure anything.
HELD_OUT_FRACTION, MAX_HELD_OUT, MIN_EXAMPLES_TO_SPLIT = 0.2, 500, 10


def fine_tuning_defaults(config: TrainingConfig) -> TrainingConfig:
    """Return the training settings of a preset for new data.

    What fits the model stays: batch size, regularization, metric. What fitted the data of the preset is dropped: its
    learning rate, which is that of its last polish, the length of the run, warm-up, averages, the rhythm of validation,
    and self-critical training.
    """
    return replace(
        config,
        learning_rate=config.fine_tuning_learning_rate,
        epochs="auto",
        warmup_steps="auto",
        ema="auto",
        validate_every="auto",
        max_steps=None,
        max_minutes=None,
        patience=None,
        average_checkpoints=1,
        short_first_epochs=0,
        self_critical=SelfCriticalConfig(metric=config.self_critical.metric),
    )


def scale_to_data(config: TrainingConfig, batches: Batches) -> TrainingConfig:
    """Replace every "auto" by a value that fits the number of examples and steps. Other settings stay.

    - `epochs`: 300 divided by the square root of the number of examples, from 3 to 30. Ten times the data get about a
      third of the epochs, so that steps still grow with the data.
    - `warmup_steps`: a tenth of all steps.
    - `ema`: the average covers about a tenth of all steps; the decay is at most 0.999.
    - `validate_every`: ten validations, evenly spaced.
    """
    if config.epochs == "auto":
        epochs = round(EPOCHS_TIMES_ROOT / math.sqrt(len(batches.examples)))
        config = replace(config, epochs=min(max(epochs, MIN_EPOCHS), MAX_EPOCHS))
    steps = count_steps(batches, config if config.epochs else replace(config, epochs=config.self_critical.epochs))
    derived: dict[str, Any] = {
        "warmup_steps": round(WARMUP_FRACTION * steps),
        "ema": min(max(1 - 1 / (AVERAGED_FRACTION * steps), 0.0), MAX_EMA),
        "validate_every": max(round(steps / NUM_VALIDATIONS), 1),
    }
    derived = {name: value for name, value in derived.items() if getattr(config, name) == "auto"}
    if "validate_every" in derived:
        derived["validate_unit"] = "steps"
    return replace(config, **derived)


def count_steps(batches: Batches, config: TrainingConfig) -> int:
    """Return the number of steps of a run whose `epochs` is a number."""
    steps = sum(-(-batches.num_batches(epoch) // config.accumulate) for epoch in range(int(config.epochs)))
    return steps if config.max_steps is None else min(steps, config.max_steps)


def num_held_out(num_examples: int) -> int:
    """Return how many examples are held out for validation where the user gave no data for it."""
    if num_examples < MIN_EXAMPLES_TO_SPLIT:
        return 0
    return min(round(HELD_OUT_FRACTION * num_examples), MAX_HELD_OUT)


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
    paths = []
    waiting = [("decoder", model.decoder), ("encoder", model.encoder)]
    while waiting:
        path, layer = waiting.pop()
        paths.append((path, layer))
        waiting += [(f"{path}/{child.name}", child) for child in reversed(_children(layer))]
    return paths


def weight_paths(model: keras.Model) -> list[tuple[str, keras.Variable]]:
    """Return all weights of a model with their paths."""
    paths = []
    for path, layer in layer_paths(model):
        below = {id(weight) for child in _children(layer) for weight in child.weights}
        own = [weight for weight in layer.weights if id(weight) not in below]
        for place, weight in enumerate(own):
            # Keras may have generated the name from a global counter.
            is_generated = re.fullmatch(r"variable(_\d+)?", weight.name)
            paths.append((f"{path}/{f'variable_{place}' if is_generated else weight.name}", weight))
    return paths


def named_weights(model: keras.Model) -> dict[str, keras.Variable]:
    """Return the weights by path, as presets store them. A shared weight has its first path."""
    named: dict[int, tuple[str, keras.Variable]] = {}
    for path, weight in weight_paths(model):
        named.setdefault(id(weight), (path, weight))
    return dict(named.values())


def assign_weights(model: keras.Model, arrays: Mapping[str, np.ndarray]) -> None:
    """Assign arrays to the weights by path. Paths and shapes must match exactly."""
    weights = named_weights(model)
    for problem, names in (("lacks", weights.keys() - arrays.keys()), ("has unknown", arrays.keys() - weights.keys())):
        if names:
            raise ValueError(f"the weights file {problem} {sorted(names)[0][:200]!r} and {len(names) - 1} more")
    for path, weight in weights.items():
        if tuple(arrays[path].shape) != tuple(weight.shape):
            found, wanted = tuple(arrays[path].shape), tuple(weight.shape)
            raise ValueError(f"{path!r} must be of shape {wanted}. Received: shape={found}")
    for path, weight in weights.items():
        weight.assign(arrays[path].astype("float32"))


def match_hard_attention(
    wanted: Mapping[str, keras.Variable], arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Rename arrays to the paths of another model, which may add or drop the hard attention layer.

    The baseline of hard attention is a training statistic. If it is missing, the new model keeps its own.
    """
    hard, soft, baseline = "/hard_attention/attention/", "/attention/", "/hard_attention/baseline"
    plain = {path.replace(hard, soft): array for path, array in arrays.items()}
    names = {path: path.replace(hard, soft) for path in wanted}
    renamed = {path: plain.pop(name) for path, name in names.items() if name in plain}
    missing = {path: weight for path, weight in wanted.items() if path.endswith(baseline) and path not in renamed}
    baselines = {path: weight.numpy() for path, weight in missing.items()}
    return renamed | baselines | {path: array for path, array in plain.items() if not path.endswith(baseline)}


def copy_grown_weights(old_model: keras.Model, new_model: keras.Model) -> None:
    """Copy the weights of a model into a model with a larger vocabulary that begins with the same words.

    In weights with an entry per word, new words are initialized with the entry of the unknown word.
    """
    old_weights, new_weights = weight_paths(old_model), weight_paths(new_model)
    if [path for path, _ in old_weights] != [path for path, _ in new_weights]:
        odd = sorted({path for path, _ in old_weights} ^ {path for path, _ in new_weights})
        raise ValueError(f"The models must differ in their vocabularies only. In one of them only: {', '.join(odd)}")
    for (path, old), (_, new) in zip(old_weights, new_weights, strict=True):
        array, shape = keras.ops.convert_to_numpy(old), tuple(new.shape)
        if array.shape != shape:
            axes = [axis for axis, (before, now) in enumerate(zip(array.shape, shape)) if before != now]
            if array.ndim != len(shape) or len(axes) != 1 or array.shape[axes[0]] > shape[axes[0]]:
                received = f"Received: {path} of shape {array.shape}, to become {shape}"
                raise ValueError(f"A vocabulary can only grow. {received}")
            unknown = np.take(array, [UNKNOWN], axis=axes[0])
            new_words = np.repeat(unknown, shape[axes[0]] - array.shape[axes[0]], axis=axes[0])
            array = np.concatenate([array, new_words], axis=axes[0])
        new.assign(array)


def _children(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    return list(layer._flatten_layers(include_self=False, recursive=False))
