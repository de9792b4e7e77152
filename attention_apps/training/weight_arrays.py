"""Variables to arrays and back, by their places in a list: Keras' names change with each model made in a process."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf


def to_arrays(prefix: str, variables: Sequence) -> dict[str, np.ndarray]:
    """The values of variables, as `<prefix>/<place>/<name>`."""
    return {
        name: np.asarray(_inner(variable).numpy())
        for name, variable in zip(array_names(prefix, variables), variables, strict=True)
    }


def assign_arrays(prefix: str, variables: Sequence, arrays: Mapping[str, np.ndarray]) -> None:
    """Gives variables the values that `to_arrays` took of others of the same shapes."""
    names = array_names(prefix, variables)
    found = {name for name in arrays if name.startswith(f"{prefix}/")}
    if found != set(names):
        odd = sorted(found ^ set(names))
        raise ValueError(f"The checkpoint is of another model: {len(odd)} entries differ, the first is {odd[0]}")
    for name, variable in zip(names, variables, strict=True):
        if tuple(variable.shape) != arrays[name].shape:
            raise ValueError(
                f"The checkpoint is of another model: {name} has shape {arrays[name].shape}, "
                f"the model's is {tuple(variable.shape)}"
            )
    for name, variable in zip(names, variables, strict=True):
        _inner(variable).assign(arrays[name])


def array_names(prefix: str, variables: Sequence) -> list[str]:
    return [f"{prefix}/{place:04d}/{_last_name(variable)}" for place, variable in enumerate(variables)]


def _inner(variable) -> tf.Variable:
    return variable if isinstance(variable, tf.Variable) else variable.value


def _last_name(variable) -> str:
    return variable.name.split("/")[-1].split(":")[0]
