"""Output files named after their inputs."""

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_LONGEST_STEM = 80


class OutputFiles:
    """A folder with a picture or a page for each answer: `photo_attention.png` for `somewhere/photo.jpg`.

    No two inputs get the same file, on file systems that ignore case too. No input is overwritten, and a link in the
    folder is replaced, never followed.

    Args:
        folder: created if it does not exist.
        ending: `".png"` for pictures, `".html"` for pages.
        inputs: the names of all inputs.
    """

    def __init__(self, folder: str, ending: str, inputs: Sequence[str]):
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{folder} is a file, not a folder to write to")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ending = ending
        self._taken = {_key(Path(name)) for name in inputs}

    def write(self, answer: Any) -> None:
        """Writes the picture or the page of an answer, to a new file that then takes its name."""
        path = self.path_of(answer.source)
        if path.is_dir() and not path.is_symlink():
            raise ValueError(f"{path} is a folder; the picture or page of {answer.source} needs this name")
        with tempfile.TemporaryDirectory(prefix=".", dir=self.folder) as private:
            new = Path(private) / path.name
            (answer.result.to_html if self.ending == ".html" else answer.result.plot)(str(new))
            os.replace(new, path)

    def path_of(self, name: str) -> Path:
        """The path for an input; a new one at each call."""
        stem = _stem(name)
        number = 1
        while True:
            path = self.folder / f"{stem}_attention{'' if number == 1 else f'_{number}'}{self.ending}"
            if _key(path) not in self._taken:
                self._taken.add(_key(path))
                return path
            number += 1


def _stem(name: str) -> str:
    """The ASCII letters, digits and dashes of a file's name."""
    stem = "stdin" if name == "-" else Path(name).stem
    return re.sub(r"[^\w-]+", "_", stem, flags=re.ASCII).strip("_")[:_LONGEST_STEM] or "input"


def _key(path: Path) -> str:
    return str(path.absolute()).casefold()
