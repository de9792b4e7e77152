"""Files that are called after the inputs they belong to."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_LONGEST_STEM = 80


class OutputFiles:
    """A folder with a picture or a page for each answer: `photo_attention.png` for `somewhere/photo.jpg`.

    No two inputs get the same file, whatever the case of their letters, and no input is written over.

    Args:
        folder: created if it is not there.
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
        """Writes the picture or the page of an answer."""
        path = str(self.path_of(answer.source))
        if self.ending == ".html":
            answer.result.to_html(path)
        else:
            answer.result.plot(path)

    def path_of(self, name: str) -> Path:
        """A new path at each call."""
        stem = _stem(name)
        number = 1
        while True:
            path = self.folder / f"{stem}_attention{'' if number == 1 else f'_{number}'}{self.ending}"
            if _key(path) not in self._taken:
                self._taken.add(_key(path))
                return path
            number += 1


def _stem(name: str) -> str:
    """The plain letters, digits and dashes of a file's name."""
    stem = "stdin" if name == "-" else Path(name).stem
    return re.sub(r"[^\w-]+", "_", stem, flags=re.ASCII).strip("_")[:_LONGEST_STEM] or "input"


def _key(path: Path) -> str:
    return str(path.absolute()).casefold()
