"""Checkpoints of a run: the arrays of its variables and its state as JSON, in one safetensors file."""

import dataclasses
import json
import os
import warnings
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from keras import tree
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from attention_apps import files
from attention_apps.data.batches import Batches
from attention_apps.training.config import TrainingConfig, to_dict

# Settings that may change when a run is resumed: they do not influence the weights, or only say when to stop.
FREE_FIELDS = ("max_minutes", "checkpoint_minutes", "log_every", "strict")

_FORMAT = "2"
_SUFFIX = ".safetensors"
_PARTIAL = ".partial"


@dataclass(frozen=True)
class Checkpoint:
    """The content of a file: arrays by name, and the state as plain JSON values."""

    arrays: dict[str, np.ndarray]
    state: dict[str, Any]


class DamagedCheckpointError(ValueError):
    """The file is truncated, altered, or not a checkpoint at all."""


class CheckpointFolder:
    """The checkpoints of one run.

    `last` is the newest one and `previous` the one before it. `best` and `candidate-<step>` hold weights that did well
    in validation. A process killed at any moment leaves at least one complete checkpoint, once the first was written.
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)

    def save_last(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Write `last`. The old `last` becomes `previous`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.path("last").with_suffix(_SUFFIX + _PARTIAL)
        try:
            files.write_file(partial, _to_bytes(arrays, state))
            if self.path("last").exists():
                files.rename(self.path("last"), self.path("previous"))
            files.rename(partial, self.path("last"))
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        files.sync_folder(self.folder)

    def save(self, name: str, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Write the checkpoint `name`, replacing an older one atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files.replace_file(self.path(name), _to_bytes(arrays, state))

    def load_last(self) -> Checkpoint | None:
        """Load the newest intact checkpoint, with a warning if a newer one is damaged. `None` if there are none.

        Raises:
            DamagedCheckpointError: there are checkpoints, but none is intact.
        """
        errors = []
        for name in ("last", "previous"):
            if self.path(name).exists():
                try:
                    checkpoint = self.load(name)
                except DamagedCheckpointError as error:
                    errors.append(str(error))
                else:
                    if errors:
                        warnings.warn(f"{errors[0]}; going back to the checkpoint before it", stacklevel=2)
                    return checkpoint
        if errors:
            raise DamagedCheckpointError(
                f"The run in {self.folder.parent} cannot be resumed: {'; '.join(errors)}. To train from the beginning, "
                "restart it (--restart on the command line, `restart=True` in Python)."
            )
        return None

    def load(self, name: str) -> Checkpoint:
        """Load the checkpoint `name` and verify its checksum."""
        path = self.path(name)
        if not path.exists():
            raise FileNotFoundError(f"There is no checkpoint {path}")
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            if "checksum" in metadata and metadata.get("format") != _FORMAT:
                raise DamagedCheckpointError(f"{path} was written by another version and cannot be read")
            if metadata["checksum"] != str(_checksum(arrays, metadata["state"])):
                raise DamagedCheckpointError(f"{path} is damaged: its checksum is wrong")
            return Checkpoint(arrays, json.loads(metadata["state"]))
        except (SafetensorError, KeyError, OSError) as error:
            raise DamagedCheckpointError(f"{path} is damaged or no checkpoint: {error}") from error

    def keep_only(self, kept: Collection[str], prefix: str) -> None:
        """Remove the checkpoints whose names begin with `prefix`, except those that are kept."""
        for path in self.folder.glob(f"{prefix}*{_SUFFIX}"):
            if path.name.removesuffix(_SUFFIX) not in kept:
                path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all checkpoints and leave other files alone."""
        for pattern in (f"*{_SUFFIX}", f"*{_SUFFIX}{_PARTIAL}", f".*{_SUFFIX}-*"):
            for path in self.folder.glob(pattern):
                path.unlink()

    def path(self, name: str) -> Path:
        """Return the path of the checkpoint `name`."""
        return self.folder / f"{name}{_SUFFIX}"


def _to_bytes(arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> bytes:
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps(state)
    return save(arrays, {"format": _FORMAT, "state": text, "checksum": str(_checksum(arrays, text))})


def _as_bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _checksum(arrays: Mapping[str, np.ndarray], state: str) -> int:
    checksum = zlib.crc32(state.encode())
    for name, array in sorted(arrays.items()):
        described = f"{name} {array.dtype} {array.shape}"
        checksum = zlib.crc32(_as_bytes(array), zlib.crc32(described.encode(), checksum))
    return checksum


@dataclass
class RunState:
    """The position of a run and its results so far, all of them JSON values."""

    step: int = 0
    epoch: int = 0
    # The number of the next batch within the epoch.
    batch: int = 0
    seconds: float = 0.0
    skipped_steps: int = 0
    # One entry per validation: `step`, `epoch` and the metrics.
    validations: list[dict[str, float]] = dataclasses.field(default_factory=list)
    # The step of the last validation, with or without a metric.
    validated_step: int = -1
    # The best value of the metric, its score (higher is better) and its step.
    best: float | None = None
    best_score: float | None = None
    best_step: int | None = None
    # The number of validations since the best one.
    stale: int = 0
    # Score and step of the weights kept for averaging.
    candidates: list[list[float]] = dataclasses.field(default_factory=list)
    # Why the run has ended; empty while it has not.
    finished: str = ""


def describe_run(config: TrainingConfig, batches: Batches) -> dict[str, Any]:
    """Return what must not change when a run is resumed: the configuration and a fingerprint of the data.

    The fingerprint has the numbers of examples and batches, and checksums of the lengths and of three examples.
    """
    settings = {name: value for name, value in to_dict(config).items() if name not in FREE_FIELDS}
    count = len(batches.examples)
    data = {"examples": count, "batches of the first epoch": batches.num_batches(0)}
    if batches.lengths is not None:
        data["checksum of the lengths"] = zlib.crc32(_as_bytes(batches.lengths))
    for name, index in (("first", 0), ("middle", count // 2), ("last", count - 1)):
        checksum = 0
        for array in map(np.asarray, tree.flatten(batches.examples[index])):
            content = repr(array.tolist()).encode() if array.dtype.kind in "OSU" else _as_bytes(array)
            checksum = zlib.crc32(content, checksum)
        data[f"checksum of the {name} example"] = checksum
    return {"config": settings, "data": data}


def check_same_run(before: Mapping[str, Any], now: Mapping[str, Any], folder: Any) -> None:
    """Raise an error that names every difference between two descriptions of a run."""
    changes = [
        f"{'`' + name + '`' if part == 'config' else name} was {before[part].get(name)!r}, now {now[part].get(name)!r}"
        for part in ("config", "data")
        for name in sorted({*before[part], *now[part]})
        if before[part].get(name) != now[part].get(name)
    ]
    if changes:
        raise ValueError(
            f"{folder} holds a run that differs from this one: {'; '.join(changes)}. "
            "Restart it, choose another folder, or undo the changes."
        )


def to_arrays(prefix: str, variables: Sequence) -> dict[str, np.ndarray]:
    """Return the values of variables as `<prefix>/<index>/<name>`.

    The index identifies a variable, because the full names of Keras depend on the models made before in the process.
    """
    return {name: np.asarray(variable.numpy()) for name, variable in _by_name(prefix, variables).items()}


def assign_arrays(prefix: str, variables: Sequence, arrays: Mapping[str, np.ndarray]) -> None:
    """Assign the arrays of `to_arrays` to variables of the same shapes."""
    named = _by_name(prefix, variables)
    found = {name for name in arrays if name.startswith(f"{prefix}/")}
    if found != named.keys():
        odd = sorted(found ^ named.keys())
        raise ValueError(f"The checkpoint is of another model: {len(odd)} entries differ, the first is {odd[0]}")
    for name, variable in named.items():
        if tuple(variable.shape) != arrays[name].shape:
            raise ValueError(
                f"The checkpoint is of another model: {name} has shape {arrays[name].shape}, "
                f"the model's is {tuple(variable.shape)}"
            )
    for name, variable in named.items():
        variable.assign(arrays[name])


def _by_name(prefix: str, variables: Sequence) -> dict[str, tf.Variable]:
    """Return the variables of TensorFlow, also those inside of Keras' variables, by the names of their arrays."""
    named = {}
    for index, variable in enumerate(variables):
        last_name = variable.name.split("/")[-1].split(":")[0]
        inner = variable if isinstance(variable, tf.Variable) else variable.value
        named[f"{prefix}/{index:04d}/{last_name}"] = inner
    return named
