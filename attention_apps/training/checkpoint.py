"""Checkpoints: arrays and JSON in one safetensors file, complete or not there at all."""

import json
import os
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

_SUFFIX = ".safetensors"
_PARTIAL = ".partial"


@dataclass(frozen=True)
class Checkpoint:
    """What a file held: the arrays by name, and the state as plain JSON values."""

    arrays: dict[str, np.ndarray]
    state: dict[str, Any]


class DamagedCheckpointError(ValueError):
    """The file is not a checkpoint, or not all of one, or its content is not what was written."""


class CheckpointFolder:
    """The checkpoints of one run.

    `last` is the newest, `previous` the one before it, kept until there is a newer complete one; `best` and
    `candidate-<step>` hold weights that did well in validation. A process killed at any moment leaves behind at least
    one complete checkpoint, once there has been one.
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)

    def save_last(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Writes `last`; what was `last` becomes `previous`."""
        partial = self._write_partial("last", arrays, state)
        if self.path("last").exists():
            os.replace(self.path("last"), self.path("previous"))
        os.replace(partial, self.path("last"))
        _sync(self.folder)

    def save(self, name: str, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Writes the checkpoint called `name`, in place of the one of that name."""
        os.replace(self._write_partial(name, arrays, state), self.path(name))
        _sync(self.folder)

    def load_last(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, with a warning if a newer one is not; `None` if there is none at all."""
        for name in ("last", "previous"):
            if self.path(name).exists():
                try:
                    return self.load(name)
                except DamagedCheckpointError as error:
                    warnings.warn(f"{error}; going back to the checkpoint before it", stacklevel=2)
        return None

    def load(self, name: str) -> Checkpoint:
        return read_checkpoint(self.path(name))

    def remove(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        return [path.name.removesuffix(_SUFFIX) for path in self.folder.glob(f"*{_SUFFIX}")]

    def clear(self) -> None:
        """Removes all checkpoints, and nothing else that may lie in the folder."""
        for pattern in (f"*{_SUFFIX}", f"*{_SUFFIX}{_PARTIAL}"):
            for path in self.folder.glob(pattern):
                path.unlink()

    def path(self, name: str) -> Path:
        return self.folder / f"{name}{_SUFFIX}"

    def _write_partial(self, name, arrays, state):
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.path(name).with_suffix(_SUFFIX + _PARTIAL)
        write_checkpoint(partial, arrays, state)
        return partial


def write_checkpoint(path: Path, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
    """Writes one file and waits until it is on the disk."""
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    metadata = {"state": json.dumps(state), "checksum": str(_checksum(arrays))}
    save_file(arrays, path, metadata=metadata)
    _sync(path)


def read_checkpoint(path: Path) -> Checkpoint:
    """Reads one file and checks that it holds what was written."""
    if not path.exists():
        raise FileNotFoundError(f"There is no checkpoint {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if metadata["checksum"] != str(_checksum(arrays)):
            raise DamagedCheckpointError(f"{path} is damaged: its checksum is wrong")
        return Checkpoint(arrays, json.loads(metadata["state"]))
    except (SafetensorError, KeyError, json.JSONDecodeError, OSError) as error:
        raise DamagedCheckpointError(f"{path} is damaged or no checkpoint: {error}") from error


def _checksum(arrays: Mapping[str, np.ndarray]) -> int:
    checksum = 0
    for name in sorted(arrays):
        checksum = zlib.crc32(arrays[name].reshape(-1).view(np.uint8), zlib.crc32(name.encode(), checksum))
    return checksum


def _sync(path: Path) -> None:
    """Waits until a file's content, or a folder's entries, are on the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
