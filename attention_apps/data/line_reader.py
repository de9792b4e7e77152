"""Reads the lines of a text file in bounded memory and reports lines that cannot be used."""

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from attention_apps.terminal import printable

MAX_LINE_BYTES = 1_000_000

_WRONG_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


@dataclass(frozen=True)
class Problem:
    """A problem with a line of a data file."""

    kind: str
    file: Path
    line: int
    message: str

    def __str__(self) -> str:
        return printable(f"{self.file}, line {self.line}: {self.message}")


def raise_problem(problem: Problem) -> None:
    """Raise a problem as an error: the default where problems are not collected."""
    raise ValueError(str(problem))


class LineReader:
    """Iterates over the decoded lines of a UTF-8 file, decompressed if its name ends in .gz.

    A line that is not text (not UTF-8, with a NUL, longer than a million bytes) is reported and yielded empty. A
    `ValueError` is raised if this is the first line: the file is not a text file.

    Attributes:
        number: the number of the last line, counted from 1.
        damaged: set to true when a line is reported; never set back here.
    """

    def __init__(self, file: Path, on_problem: Callable[[Problem], None]):
        self.file = file
        self.number = 0
        self.damaged = False
        self.on_problem = on_problem

    def __iter__(self) -> Iterator[str]:
        if not self.file.is_file():
            raise FileNotFoundError(f"There is no file {self.file}")
        unpack = gzip.open if self.file.suffix == ".gz" else open
        with unpack(self.file, "rb") as stream:
            yield from self.lines(stream)

    def lines(self, stream: gzip.GzipFile | BinaryIO) -> Iterator[str]:
        """Yield the decoded lines of an open file."""
        try:
            while line := stream.readline(MAX_LINE_BYTES + 1):
                self.number += 1
                yield self._decode(line, stream)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            message = f"{self.file}, after line {self.number}: the gzip data is broken: {error}"
            raise ValueError(message) from None

    def report(self, message: str, kind: str = "broken row", line: int | None = None) -> None:
        """Report a problem with a line, by default with the last one."""
        self.on_problem(Problem(kind, self.file, self.number if line is None else line, message))

    def _decode(self, line: bytes, stream: gzip.GzipFile | BinaryIO) -> str:
        if self.number == 1:
            line = self._check_start(line)
        if len(line) > MAX_LINE_BYTES:
            _skip_line(line, stream)
            return self._drop(f"the line is longer than {MAX_LINE_BYTES:,} bytes")
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            return self._drop(f"the line is not UTF-8 (byte 0x{line[error.start]:02x} at {error.start + 1})")
        return self._drop("the line has a NUL character") if "\0" in text else text

    def _drop(self, message: str) -> str:
        if self.number == 1:
            raise ValueError(f"{self.file} is not a text file in UTF-8: in line 1, {message}")
        self.damaged = True
        self.report(message, kind="encoding")
        return ""

    def _check_start(self, line: bytes) -> bytes:
        for mark, encoding in _WRONG_MARKS.items():
            if line.startswith(mark):
                raise ValueError(f"{self.file} is {encoding} text; save it as UTF-8.")
        return line.removeprefix(codecs.BOM_UTF8)


def _skip_line(line: bytes, stream: gzip.GzipFile | BinaryIO) -> None:
    while line and not line.endswith(b"\n"):
        line = stream.readline(MAX_LINE_BYTES)
