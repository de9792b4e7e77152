"""Results of probing source files, kept on disk so that an unchanged file is decoded only once."""

import json
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path

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
        self._lock = threading.Lock()

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
                    self._save()
        length, message = result
        if message is not None:
            raise ValueError(message)
        return length

    def save(self) -> None:
        """Write all results to disk."""
        with self._lock:
            if self._unsaved:
                self._save()

    def _save(self) -> None:
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
        return dict(map(_parse_line, lines))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def _parse_line(line: str) -> tuple[tuple, ProbeResult]:
    probe_name, path, size, mtime, length, message = json.loads(line)
    types = (str, str, int, int, int | float | None, str | None)
    if not all(map(isinstance, (probe_name, path, size, mtime, length, message), types)):
        raise ValueError("not a result of a probe")
    return (probe_name, path, size, mtime), (length, message)
