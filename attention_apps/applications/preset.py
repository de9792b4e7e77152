"""A trained application on disk or on the Hugging Face Hub: a folder of plain files that are verified before use.

`config.json`, text files (a vocabulary), `weights.safetensors` (arrays, no code), `README.md` (the card), and
`SHA256SUMS` over all of them. Loading a preset runs no code from it.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attention_apps._version import __version__
from attention_apps.checks import require
from attention_apps.files import recover_folder, replaced_folder, write_file

CONFIG, WEIGHTS, CARD, SUMS = "config.json", "weights.safetensors", "README.md", "SHA256SUMS"
FORMAT = 2
# Larger files are rejected. The presets of the package are far smaller.
MAX_BYTES = {CONFIG: 1 << 20, SUMS: 1 << 16, CARD: 1 << 20, WEIGHTS: 4 << 30}
MAX_TEXT_BYTES = 64 << 20
MAX_FILES = 32
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_PRESET_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,99}")
_SUM_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")
# The suffix of the scales of an 8-bit weight. No weight path ends with it.
_SCALE = ":scale"
# The start of a handle of a preset on the Hugging Face Hub: `hf://user/model` or `hf://user/model@revision`.
HUB_PREFIX = "hf://"
# Only these files of a repository are downloaded. `read_preset` checks them like those of any folder.
_HUB_FILES = [CONFIG, "*.txt", WEIGHTS, CARD, SUMS]
_HUB_HANDLE = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)


@dataclass(frozen=True)
class Preset:
    """The contents of a preset folder: the task, its configuration, text files by name, and arrays by path."""

    task: str
    config: dict[str, Any]
    texts: dict[str, str]
    weights: dict[str, np.ndarray]

    def check_size(self, min_parameters: int) -> None:
        """Reject configurations larger than the weights file, and weights that are not finite numbers."""
        held = sum(array.size for array in self.weights.values())
        if min_parameters > held:
            raise ValueError(f"its configuration needs at least {min_parameters:,} parameters; {WEIGHTS} has {held:,}")
        for path, array in self.weights.items():
            if array.dtype.kind != "f" or not np.isfinite(array).all():
                raise ValueError(f"the weights {path!r} are not all finite numbers")


def presets_root() -> Path:
    """Return the folder of the presets: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "weights"
    return inside if inside.is_dir() else package.parent / "weights"


def preset_names() -> list[str]:
    """Return the names of the presets in the package."""
    root = presets_root()
    return sorted(folder.name for folder in root.iterdir() if (folder / CONFIG).is_file()) if root.is_dir() else []


def find_preset(name_or_folder: str | os.PathLike) -> Path:
    """Return the folder of a preset, given the name of a preset in the package, a folder, or `hf://user/model`."""
    if isinstance(name_or_folder, str) and name_or_folder.startswith(HUB_PREFIX):
        return download_preset(name_or_folder)
    folder = Path(name_or_folder)
    recover_folder(folder)
    if folder.is_dir():
        return folder
    name = os.fspath(name_or_folder)
    if not isinstance(name, str) or not _PRESET_NAME.fullmatch(name) or name not in preset_names():
        if os.sep in str(name):
            raise FileNotFoundError(f"There is no preset in {str(name)!r}")
        choices = ", ".join(preset_names()) or "none"
        raise ValueError(f"A preset must be a folder or one of: {choices}. Received: {str(name)[:200]!r}")
    return presets_root() / name


def download_preset(handle: str) -> Path:
    """Download a preset into the cache of `huggingface_hub` and return its folder. Offline, the cache answers.

    Args:
        handle: `hf://user/model`, optionally with `@` and a branch, tag or commit.

    Raises:
        FileNotFoundError: there is no such repository or revision, or it is not in the cache and the hub is out of
            reach.
    """
    match = _HUB_HANDLE.fullmatch(handle)
    if match is None:
        raise ValueError(
            f"A preset of the hub must have the form hf://user/model or hf://user/model@revision. "
            f"Received: {handle[:200]!r}"
        )
    hub = _import_hub()
    try:
        folder = hub.snapshot_download(
            match[1],
            revision=match[2],
            allow_patterns=_HUB_FILES,
            library_name="attention_apps",
            library_version=__version__,
        )
    except (hub.errors.HfHubHTTPError, hub.errors.LocalEntryNotFoundError) as error:
        raise FileNotFoundError(f"{handle} cannot be loaded from the hub: {str(error).splitlines()[0]}") from error
    return Path(folder)


def upload_preset(folder: str | os.PathLike, repository: str, private: bool | None, revision: str | None) -> str:
    """Upload the folder of a preset, creating the repository if there is none.

    Returns:
        The address of the commit.
    """
    hub = _import_hub()
    api = hub.HfApi(library_name="attention_apps", library_version=__version__)
    api.create_repo(repository, private=private, exist_ok=True)
    if revision is not None:
        api.create_branch(repository, branch=revision, exist_ok=True)
    commit = api.upload_folder(
        repo_id=repository,
        folder_path=folder,
        revision=revision,
        commit_message=f"Preset of attention_apps {__version__}",
        delete_patterns=["*.txt"],  # files of an earlier preset that this one does not have
    )
    return str(commit.commit_url)


def _import_hub() -> Any:
    try:
        import huggingface_hub.errors
    except ImportError:
        raise ValueError("Presets of the hub need huggingface_hub: `pip install 'attention_apps[hub]'`") from None
    return huggingface_hub


def write_preset(folder: str | os.PathLike, preset: Preset, card: str, bits: int = 32) -> None:
    """Write a preset atomically: another process sees the old folder or the new one, never a part.

    Args:
        bits: bits per weight; see `Application.save`.
    """
    from safetensors.numpy import save

    require(bits in (32, 16, 8), "bits", "32, 16 or 8", bits)
    folder = Path(folder)
    if folder.name in ("", ".."):
        raise ValueError(f"`folder` must end with a name, because it is replaced as a whole. Received: {str(folder)!r}")
    if folder.exists() and not (folder / SUMS).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"`folder` must be new, empty, or hold a preset. Received: folder={str(folder)!r}")
    config = {"format": FORMAT, "task": preset.task, "config": preset.config}
    files = {name: text.encode() for name, text in preset.texts.items()}
    files[CONFIG] = (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()
    files[CARD] = card.encode()
    files[WEIGHTS] = save(pack_weights(preset.weights, bits))
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items())]
    files[SUMS] = "".join(lines).encode()
    with replaced_folder(folder) as temporary:
        for name, data in files.items():
            write_file(temporary / name, data)


def read_preset(folder: str | os.PathLike) -> Preset:
    """Verify the hash of every file in a folder, then read them. Raises `ValueError` if anything is wrong."""
    from safetensors.numpy import load

    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no preset in {str(folder)!r}")
    files = {}
    for name, expected in _read_sums(folder).items():
        files[name] = _read(folder, name)
        if hashlib.sha256(files[name]).hexdigest() != expected:
            raise ValueError(
                f"{folder / name}: its sha256 is not the one in {SUMS}; the file is damaged or was changed"
            )
    for name in (CONFIG, WEIGHTS):
        if name not in files:
            raise ValueError(f"{folder}: {name} is missing")
    config = _parse_config(folder, files[CONFIG])
    if not isinstance(config.get("config"), dict):
        raise ValueError(f"{folder}: `config` must be a JSON object")
    texts = {name: _decode(folder, name, data) for name, data in files.items() if name.endswith(".txt")}
    try:
        weights = unpack_weights(load(files[WEIGHTS]))
    except Exception as error:
        raise ValueError(f"{folder / WEIGHTS}: not a file of arrays: {error}") from None
    return Preset(config["task"], config["config"], texts, weights)


def read_task(folder: str | os.PathLike) -> str:
    """Return the task of a preset without verifying its hash."""
    return _parse_config(Path(folder), _read(Path(folder), CONFIG))["task"]


def pack_weights(weights: Mapping[str, np.ndarray], bits: int) -> dict[str, np.ndarray]:
    """Convert arrays for storage. With 8 bits, small arrays of one axis are stored as 16-bit floats."""
    packed = {}
    for path, array in weights.items():
        array = np.asarray(array, order="C")
        if bits == 32 or not array.size:
            packed[path] = array.astype(np.float32)
        elif bits == 16 or array.ndim < 2:
            packed[path] = array.astype(np.float16)
        else:
            packed[path], packed[path + _SCALE] = quantize(array)
    return packed


def quantize(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return 8-bit integers and the scale of each channel.

    The channel axis is the one with the smallest error: the last axis of a dense kernel, the first of an embedding.
    """
    best = None
    for axis in range(array.ndim):
        others = tuple(other for other in range(array.ndim) if other != axis)
        scale = np.maximum(np.abs(array).max(axis=others, keepdims=True) / 127, 1e-12).astype(np.float32)
        if scale.size * 8 > array.size:  # too many scales to save space
            continue
        integers = np.clip(np.rint(array / scale), -127, 127).astype(np.int8)
        loss = float(np.square(integers * scale - array).sum())
        if best is None or loss < best[0]:
            best = loss, integers, scale
    if best is None:
        scale = np.maximum(np.abs(array).max(keepdims=True) / 127, 1e-12).astype(np.float32)
        return np.clip(np.rint(array / scale), -127, 127).astype(np.int8), scale
    return best[1], best[2]


def unpack_weights(packed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Reverse `pack_weights`, and return float32."""
    weights = {}
    for path, array in packed.items():
        if path.endswith(_SCALE):
            continue
        if array.dtype == np.int8:
            scale = packed[path + _SCALE]
            if np.broadcast_shapes(array.shape, scale.shape) != array.shape:  # small files must not become huge arrays
                raise ValueError(f"the scales of {path!r} must fit shape {array.shape}. Received: shape={scale.shape}")
            array = array.astype(np.float32) * scale
        elif array.dtype == np.float16:
            array = array.astype(np.float32)
        weights[path] = array
    return weights


def _read_sums(folder):
    """Return the expected hash of each file. The folder must hold exactly these files."""
    path = folder / SUMS
    if not path.is_file():
        raise ValueError(f"{folder}: {SUMS} is missing; `save` writes it")
    lines = _decode(folder, SUMS, _read(folder, SUMS)).splitlines()
    if len(lines) > MAX_FILES:
        raise ValueError(f"{path}: more than {MAX_FILES} files")
    sums = {}
    for number, line in enumerate(lines, 1):
        match = _SUM_LINE.fullmatch(line)
        if not match or not _FILE_NAME.fullmatch(match[2]) or match[2] in sums:
            raise ValueError(f"{path}, line {number}: must be a sha256 and the plain name of a file")
        if match[2] not in (CONFIG, WEIGHTS, CARD) and not match[2].endswith(".txt"):
            raise ValueError(f"{path}, line {number}: {match[2]} is not a file of a preset")
        sums[match[2]] = match[1]
    # Every repository of the hub has `.gitattributes`; it is not read.
    extra = {entry.name for entry in folder.iterdir()} - set(sums) - {SUMS, ".gitattributes"}
    if extra:
        raise ValueError(f"{folder}: has files that {SUMS} does not list: {', '.join(sorted(extra))[:200]}")
    return sums


def _read(folder, name):
    path, limit = folder / name, MAX_BYTES.get(name, MAX_TEXT_BYTES)
    # A link may only lead to where the cache of the hub keeps the files of the same repository.
    is_hub_blob = path.resolve().parent == (path.parent.parent.parent / "blobs").resolve()
    if (path.is_symlink() and not is_hub_blob) or not path.is_file():
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
    text = _decode(folder, CONFIG, data)
    try:
        config = json.loads(text)
        json.dumps(config, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{folder / CONFIG}: a string has half of a surrogate pair") from None
    except (ValueError, RecursionError) as error:  # also of a number of thousands of digits
        raise ValueError(f"{folder / CONFIG}: not JSON: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("task"), str):
        raise ValueError(f"{folder / CONFIG}: must be a JSON object with a `task`")
    if config.get("format") != FORMAT:
        raise ValueError(
            f"{folder / CONFIG}: `format` must be {FORMAT}. Presets of version 0.1 have none: their configuration keys "
            "changed in 0.2. Save the preset again from its training run."
        )
    return config
