"""A trained application on disk: a folder of plain files, checked before anything in it is used.

`config.json`, text files (a vocabulary), `weights.safetensors` (arrays, no code), `README.md` (the card), and
`SHA256SUMS` over all of them. Loading one runs no code from it.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CONFIG, WEIGHTS, CARD, SUMS = "config.json", "weights.safetensors", "README.md", "SHA256SUMS"
# Nothing larger is read. The presets that ship are smaller by far.
MAX_BYTES = {CONFIG: 1 << 20, SUMS: 1 << 16, CARD: 1 << 20, WEIGHTS: 4 << 30}
MAX_TEXT_BYTES = 64 << 20
MAX_FILES = 32
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_PRESET_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,99}")
_SUM_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")


@dataclass(frozen=True)
class PresetContent:
    """What a folder holds: the configuration, text files by name, and arrays by name."""

    config: dict[str, Any]
    texts: dict[str, str]
    weights: dict[str, np.ndarray]


def presets_root() -> Path:
    """Where the presets lie: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "weights"
    return inside if inside.is_dir() else package.parent / "weights"


def preset_names() -> list[str]:
    """The presets that came with the package."""
    root = presets_root()
    return sorted(folder.name for folder in root.iterdir() if (folder / CONFIG).is_file()) if root.is_dir() else []


def find_preset(name: str) -> Path:
    """The folder of a preset that came with the package."""
    if not isinstance(name, str) or not _PRESET_NAME.fullmatch(name) or name not in preset_names():
        choices = ", ".join(preset_names()) or "none"
        raise ValueError(f"`name` must be the name of a preset: {choices}. Received: name={name!r}")
    return presets_root() / name


def write_preset_folder(folder: str | os.PathLike, content: PresetContent, card: str) -> None:
    """Writes a folder as a whole: another process sees the old one or the new one, never a part."""
    from safetensors.numpy import save

    folder = Path(folder)
    files = {name: text.encode() for name, text in content.texts.items()}
    files[CONFIG] = (json.dumps(content.config, indent=2, ensure_ascii=False) + "\n").encode()
    files[CARD] = card.encode()
    files[WEIGHTS] = save({name: np.asarray(array, order="C") for name, array in content.weights.items()})
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items())]
    files[SUMS] = "".join(lines).encode()
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists() and not (folder / SUMS).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"`folder` must be new, empty, or hold a saved application. Received: folder={str(folder)!r}")
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for name, data in files.items():
            _write_file(temporary / name, data)
        temporary.chmod(0o755)
        _swap_in(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def read_preset_folder(folder: str | os.PathLike) -> PresetContent:
    """Reads a folder after checking every file in it against its hash; raises `ValueError` on anything odd."""
    from safetensors.numpy import load

    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"No folder of a saved application at {str(folder)!r}")
    files = {name: _checked_file(folder, name, expected) for name, expected in _read_sums(folder).items()}
    for name in (CONFIG, WEIGHTS):
        if name not in files:
            raise ValueError(f"{folder}: {name} is missing")
    texts = {name: _decode(folder, name, data) for name, data in files.items() if name.endswith(".txt")}
    try:
        weights = load(files[WEIGHTS])
    except Exception as error:
        raise ValueError(f"{folder / WEIGHTS}: not a file of arrays: {error}") from None
    return PresetContent(_parse_config(folder, files[CONFIG]), texts, weights)


def read_preset_config(folder: str | os.PathLike) -> Mapping[str, Any]:
    """The configuration alone, not yet checked against its hash: enough to know what the folder is of."""
    folder = Path(folder)
    return _parse_config(folder, _read(folder, CONFIG))


def _write_file(path, data):
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _swap_in(temporary, folder):
    if not folder.exists():
        temporary.rename(folder)
        return
    old = temporary.with_name(temporary.name + "-old")
    folder.rename(old)
    temporary.rename(folder)
    shutil.rmtree(old)


def _read_sums(folder):
    """The expected hash of each file; the folder must hold these files and no others."""
    path = folder / SUMS
    if not path.is_file():
        raise ValueError(f"{folder}: {SUMS} is missing; it is written by `save`")
    lines = _decode(folder, SUMS, _read(folder, SUMS)).splitlines()
    if len(lines) > MAX_FILES:
        raise ValueError(f"{path}: more than {MAX_FILES} files")
    sums = {}
    for number, line in enumerate(lines, 1):
        match = _SUM_LINE.fullmatch(line)
        if not match or not _FILE_NAME.fullmatch(match[2]) or match[2] in sums:
            raise ValueError(f"{path}, line {number}: must be a sha256 and the plain name of a file")
        if match[2] not in (CONFIG, WEIGHTS, CARD) and not match[2].endswith(".txt"):
            raise ValueError(f"{path}, line {number}: {match[2]} is no file of a saved application")
        sums[match[2]] = match[1]
    extra = {entry.name for entry in folder.iterdir()} - set(sums) - {SUMS}
    if extra:
        raise ValueError(f"{folder}: holds what {SUMS} does not list: {', '.join(sorted(extra))}")
    return sums


def _checked_file(folder, name, expected):
    data = _read(folder, name)
    if hashlib.sha256(data).hexdigest() != expected:
        raise ValueError(f"{folder / name}: its sha256 is not the one in {SUMS}; the file is damaged or was changed")
    return data


def _read(folder, name):
    path, limit = folder / name, MAX_BYTES.get(name, MAX_TEXT_BYTES)
    if path.is_symlink() or not path.is_file():
        raise ValueError(f"{path}: missing, or not a plain file")
    if path.stat().st_size > limit:
        raise ValueError(f"{path}: larger than {limit} bytes")
    return path.read_bytes()


def _decode(folder, name, data):
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{folder / name}: not UTF-8 text ({error.reason} at byte {error.start})") from None


def _parse_config(folder, data) -> Mapping[str, Any]:
    try:
        config = json.loads(_decode(folder, CONFIG, data))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{folder / CONFIG}: not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{folder / CONFIG}: must be a JSON object")
    return config
