"""The numbered versions of an exported model, as TensorFlow Serving has them: `NAME/1`, `NAME/2`."""

from pathlib import Path

SAVED_MODEL = "saved_model.pb"


def versions(folder: Path) -> list[int]:
    """The numbers of the versions in a folder, ascending."""
    if not folder.is_dir():
        return []
    return sorted(int(entry.name) for entry in folder.iterdir() if _is_number(entry.name) and entry.is_dir())


def next_version(folder: Path) -> int:
    """The number after the newest; an error where the folder holds something else than versions."""
    if folder.exists() and (not folder.is_dir() or any(not _is_ours(entry) for entry in folder.iterdir())):
        raise ValueError(f"`folder` must be new, empty, or hold exported versions. Received: folder={str(folder)!r}")
    return max(versions(folder), default=0) + 1


def newest_version(folder: Path) -> Path:
    """The folder of the newest version that can be loaded."""
    for number in reversed(versions(folder)):
        if (folder / str(number) / SAVED_MODEL).is_file():
            return folder / str(number)
    raise ValueError(f"{folder}: holds no exported model; `export` writes one, as {folder / '1' / SAVED_MODEL}")


def _is_number(name):
    return name.isascii() and name.isdecimal() and len(name) < 19


def _is_ours(entry):
    return _is_number(entry.name) or entry.name.startswith(".")
