"""What is computed once for each source file and kept on disk: results of the data check, and arrays."""

import hashlib
import json
import math
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from attention_apps import files

FILE_NAME = "data_check.jsonl"
MAX_FILE_BYTES = 200_000_000
MAX_MESSAGE_CHARACTERS = 1000
# A killed check loses at most this many results.
SAVE_EVERY = 2000

_HEADER = {"format": "attention_apps data check", "version": 1}

# The length of a source, or the message of the error that probing it raised.
ProbeResult = tuple[float | None, str | None]


class ProbeCache:
    """The result of a probe for each source file: its length, or why it cannot be decoded.

    A result belongs to the absolute path, size and modification time of the file and to the name of the probe. All
    results are in one JSON lines file in the folder, which is replaced atomically. If several processes use a folder,
    the last one to save wins: results may be lost, but the file stays valid. A damaged, foreign or oversized file is
    ignored and overwritten.

    Args:
        folder: created when the first results are saved.
        probe_name: what the probe computes and all settings that change its result.
    """

    def __init__(self, folder: str | os.PathLike, probe_name: str):
        self.path = Path(folder) / FILE_NAME
        self.probe_name = probe_name
        self._results = _read_results(self.path)
        self._unsaved = 0
        self._lock = threading.RLock()

    def probe(self, source: str, compute: Callable[[str], float | None]) -> float | None:
        """Return the cached length of a source, or call `compute`. May be called from several threads.

        A cached `ValueError` is raised again. Other exceptions, such as a failing disk, are not cached.
        """
        status = os.stat(source)
        key = (self.probe_name, os.path.abspath(source), status.st_size, status.st_mtime_ns)
        with self._lock:
            result = self._results.get(key)
        if result is None:
            result = _compute_result(source, compute)
            with self._lock:
                self._results[key] = result
                self._unsaved += 1
                if self._unsaved >= SAVE_EVERY:
                    self.save()
        length, message = result
        if message is not None:
            raise ValueError(message)
        return length

    def save(self) -> None:
        """Write all results to disk."""
        with self._lock:
            if not self._unsaved:
                return
            lines = [json.dumps(_HEADER), *(json.dumps([*key, *result]) for key, result in self._results.items())]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            files.replace_file(self.path, "".join(f"{line}\n" for line in lines).encode())
            self._unsaved = 0


def _compute_result(source: str, compute: Callable[[str], float | None]) -> ProbeResult:
    try:
        length = compute(source)
        if length is not None and not math.isfinite(length):
            raise ValueError(f"its length is {length}")
        return length, None
    except ValueError as error:
        return None, (str(error) or type(error).__name__)[:MAX_MESSAGE_CHARACTERS]


def _read_results(path: Path) -> dict[tuple, ProbeResult]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return {}
        header, *lines = path.read_bytes().decode().splitlines()
        if json.loads(header) != _HEADER:
            return {}
        results = {}
        for line in lines:
            probe_name, source, size, mtime, length, message = values = json.loads(line)
            if not all(map(isinstance, values, (str, str, int, int, int | float | None, str | None))):
                return {}
            results[probe_name, source, size, mtime] = (length, message)
        return results
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


_ALIGNMENT = 64  # bytes; a row begins at a multiple of this


@dataclass(frozen=True, slots=True)
class _Place:
    """The location of a row: its data file, offset, shape and type."""

    file: str
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def end(self) -> int:
        return self.offset + self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))


class FeatureCache:
    """A folder of arrays, one for each source file: image features, log-mel spectrograms.

    A row belongs to the path, size and modification time of its source and to the settings it was computed with. When
    any of them changes, the row is computed again. Arrays may differ in shape. They are memory-mapped, so the cache
    may be larger than the memory.

    Each `fill` adds a data file with an index beside it. A row is added to the index only after its bytes are on disk,
    so a killed process loses only the rows of its last batch, and several processes may fill the same cache.

    Args:
        folder: created if it does not exist.
        key: everything the arrays depend on besides the source, as JSON values: the preprocessing settings, the name
            and hash of the backbone.

    Example:
        cache = FeatureCache("cache", {"backbone": "efficientnet_lite2", "size": 256})
        cache.fill(paths, lambda some: backbone(load_images(some)))
        cache["photo.jpg"]     # (64, 1408), read-only
    """

    def __init__(self, folder: str | os.PathLike, key: Mapping[str, Any]):
        text = json.dumps(key, sort_keys=True, indent=1)
        self.folder = Path(folder) / hashlib.sha256(text.encode()).hexdigest()[:16]
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "key.json").exists():  # for people: the folder's name is only a hash of it
            files.replace_file(self.folder / "key.json", f"{text}\n".encode())
        self._places: dict[str, _Place] = {}
        self._maps: dict[str, np.memmap] = {}
        self._read_indices()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, source: str | os.PathLike) -> bool:
        return _row_key(source) in self._places

    def __getitem__(self, source: str | os.PathLike) -> np.ndarray:
        place = self._places.get(_row_key(source))
        if place is None:
            raise KeyError(f"{source} is not in the cache {self.folder}, or has changed since it was computed.")
        if place.end == place.offset:
            return np.empty(place.shape, place.dtype)
        known = self._maps.get(place.file)
        if known is None or known.size < place.end:  # the file has grown since it was mapped
            known = self._maps[place.file] = np.memmap(self.folder / f"{place.file}.data", np.uint8, "r")
        return np.asarray(known[place.offset : place.end]).view(place.dtype).reshape(place.shape)

    def fill(
        self,
        sources: Iterable[str | os.PathLike],
        compute: Callable[[Sequence[str]], Iterable[np.ndarray]],
        batch_size: int = 32,
        quiet: bool = False,
    ) -> None:
        """Compute the arrays of the sources that are not in the cache yet, with a progress bar.

        Args:
            compute: returns the arrays of a list of source files, in the same order.
            batch_size: the number of sources per call of `compute`. A killed process loses at most this many.
        """
        missing = [source for source in dict.fromkeys(os.fspath(source) for source in sources) if source not in self]
        if not missing:
            return
        batches = [missing[i : i + batch_size] for i in range(0, len(missing), batch_size)]
        console = Console(stderr=True)
        hidden = quiet or not console.is_terminal
        with self._new_segment() as (name, data, index):
            for batch in track(batches, "Computing features", console=console, transient=True, disable=hidden):
                keys = [_row_key(source) for source in batch]  # before reading: the file may change meanwhile
                self._append(name, data, index, keys, list(compute(batch)))

    @contextmanager
    def _new_segment(self) -> Iterator[tuple[str, FileIO, FileIO]]:
        name = uuid.uuid4().hex
        with (
            open(self.folder / f"{name}.data", "xb", buffering=0) as data,
            open(self.folder / f"{name}.index", "xb", buffering=0) as index,
        ):
            files.sync_folder(self.folder)
            yield name, data, index

    def _append(self, name: str, data: FileIO, index: FileIO, keys: list[str], arrays: list[np.ndarray]) -> None:
        if len(arrays) != len(keys):
            raise ValueError(f"`compute` gave {len(arrays)} arrays for {len(keys)} sources.")
        lines, places = [], {}
        for key, array in zip(keys, map(np.asarray, arrays)):
            if array.dtype.kind not in "biuf":
                raise TypeError(f"`compute` must give arrays of numbers. Received: dtype={array.dtype}")
            files.write(data, bytes(-data.tell() % _ALIGNMENT))
            places[key] = _Place(name, data.tell(), array.shape, array.dtype)
            files.write(data, np.ascontiguousarray(array).tobytes())
            lines.append(json.dumps([key, places[key].offset, array.shape, array.dtype.str]))
        files.sync(data)
        files.write(index, "".join(f"{line}\n" for line in lines).encode())
        files.sync(index)
        self._places.update(places)

    def _read_indices(self) -> None:
        for index in sorted(self.folder.glob("*.index")):
            data = index.with_suffix(".data")
            size = data.stat().st_size if data.exists() else 0
            for line in index.read_bytes().split(b"\n"):
                row = _parse_row(index.stem, line)
                if row is not None and row[1].end <= size:
                    self._places[row[0]] = row[1]


def _row_key(source: str | os.PathLike) -> str:
    path = os.path.abspath(source)
    try:
        status = os.stat(path)
    except OSError:
        raise FileNotFoundError(f"There is no file {source}") from None
    return f"{path}|{status.st_size}|{status.st_mtime_ns}"


def _parse_row(name: str, line: bytes) -> tuple[str, _Place] | None:
    """Parse a row of an index. Returns `None` for a torn or damaged line."""
    try:
        key, offset, shape, dtype = json.loads(line)
        place = _Place(name, int(offset), tuple(map(int, shape)), np.dtype(str(dtype)))
    except (ValueError, TypeError):
        return None
    valid = place.dtype.kind in "biuf" and place.offset >= 0 and min(place.shape, default=0) >= 0
    return (str(key), place) if valid else None
