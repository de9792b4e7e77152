"""Access to the weights of a model by path, as presets store them."""

from collections.abc import Mapping

import keras
import numpy as np

from attention_apps.training.fine_tuning import weight_paths


def named_weights(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns the weights by path. A shared weight has its first path."""
    named: dict[int, tuple[str, keras.Variable]] = {}
    for path, weight in weight_paths(model):
        named.setdefault(id(weight), (path, weight))
    return dict(named.values())


def assign_weights(model: keras.Model, arrays: Mapping[str, np.ndarray]) -> None:
    """Assigns arrays to the weights by path. Paths and shapes must match exactly."""
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
    """Renames arrays to the paths of another model, which may add or drop the hard attention layer.

    The baseline of hard attention is a training statistic. If it is missing, the new model keeps its own.
    """
    plain = {_without_hard(path): array for path, array in arrays.items()}
    renamed = {path: plain.pop(_without_hard(path)) for path in wanted if _without_hard(path) in plain}
    baselines = {path: weight.numpy() for path, weight in wanted.items() if _is_baseline(path) and path not in renamed}
    return renamed | baselines | {path: array for path, array in plain.items() if not _is_baseline(path)}


def _without_hard(path: str) -> str:
    return path.replace("/hard_attention/attention/", "/attention/")


def _is_baseline(path: str) -> bool:
    return path.endswith("/hard_attention/baseline")
