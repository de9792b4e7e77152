"""Manifests: CSV, TSV or JSONL files, optionally compressed, with a source and its target in each row."""

import codecs
import csv
import gzip
import json
import os
import random
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from attention_apps.terminal import printable

MAX_LINE_BYTES = 1_000_000
# A larger file that unpacks to more than so many times its size is no manifest: gzip reaches a thousand with zeros.
MAX_GZIP_RATIO, MIN_CHECKED_BYTES = 200, 1_000_000
_SHOWN_CHARACTERS = 200

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
    """The decoded lines of a UTF-8 file, read in bounded memory and decompressed if its name ends in .gz.

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
        with CheckedGzipFile(self.file, "rb") if self.file.suffix == ".gz" else open(self.file, "rb") as stream:
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
            for mark, encoding in _WRONG_MARKS.items():
                if line.startswith(mark):
                    raise ValueError(f"{self.file} is {encoding} text; save it as UTF-8.")
            line = line.removeprefix(codecs.BOM_UTF8)
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
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


class CheckedGzipFile(gzip.GzipFile):
    """A compressed text. `readline` raises an error once it has unpacked far more than any text would."""

    def readline(self, size: int | None = -1) -> bytes:
        line = super().readline(size)
        place = self.tell()
        compressed: Any = self.fileobj  # read up to the last block that was unpacked
        if place > MIN_CHECKED_BYTES and place > MAX_GZIP_RATIO * compressed.tell():
            raise ValueError(f"{self.name} unpacks to more than {MAX_GZIP_RATIO} times its size")
        return line


CAPTION_FILES = ("captions.csv", "captions.tsv", "captions.jsonl", "captions.txt", "*.token.txt")
IMAGE_FOLDERS = ("", "images", "Images")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a manifest: its values, `row["caption"]`, its file and line, and the target's tokens once checked."""

    values: Mapping[str, Any]
    file: Path
    line: int
    tokens: Sequence[str] | None = None

    def __getitem__(self, column: str) -> Any:
        return self.values[column]


@dataclass(frozen=True)
class Manifest:
    """The rows of a data set, read from disk each time they are iterated over.

    The file name decides the format: .csv and .tsv have a header line (quotes are special in .csv only), .jsonl has
    one object per line. Each may be compressed (.gz). A folder holds images and one captions file: captions.csv, .tsv,
    .jsonl or .txt, or Flickr's `….token.txt`, with the images beside it or in `images/`. A .txt file is either CSV or
    has lines of the form `photo.jpg#0<tab>caption`.

    Args:
        path: the file or folder.
        columns: maps our column names to the file's, `{"image": "image", "caption": "title"}`, source first and
            target second. Other columns of the file keep their names.
        paths: which of our columns name files, relative to the manifest.
    """

    path: str | PathLike
    columns: Mapping[str, str]
    paths: tuple[str, ...] = ()

    def rows(self, on_problem: Callable[[Problem], None] = raise_problem) -> Iterator[Row]:
        """Yield the rows. A broken row is passed to `on_problem` and left out."""
        file = Path(self.path)
        if file.is_dir():
            names = [*CAPTION_FILES, *(f"{name}.gz" for name in CAPTION_FILES)]
            found = sorted({path for name in names for path in file.glob(name)})
            if len(found) != 1:
                several = f"several captions files ({', '.join(path.name for path in found)})"
                what = several if found else "no captions file"
                raise ValueError(f"The folder {file} has {what}. It needs one of: {', '.join(CAPTION_FILES)}")
            file = found[0]
        lines = LineReader(file, on_problem)
        for line, values in read_records(lines, self.columns):
            message = self._bad_value(values)
            if message:
                lines.report(message, line=line)
            else:
                yield Row(self._rename(values, file.parent), file, line)

    def _bad_value(self, values: Mapping[str, Any]) -> str | None:
        for column in self.columns.values():
            if column not in values:
                return f"there is no `{column}`. Found: {', '.join(values)[:_SHOWN_CHARACTERS]}"
            if not isinstance(values[column], str):
                return f"`{column}` must be a text. Received: {json.dumps(values[column])[:80]}"
            if re.search("[\0\ud800-\udfff]", values[column]):
                return f"`{column}` has a NUL character or half of a surrogate pair"
        return None

    def _rename(self, values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """Give the columns our names, and find the files that they name."""
        renamed = {ours: values[theirs].strip() for ours, theirs in self.columns.items()}
        places = IMAGE_FOLDERS if Path(self.path).is_dir() else IMAGE_FOLDERS[:1]
        for ours in self.paths:
            if renamed[ours]:
                candidates = [os.path.join(folder, place, renamed[ours]) for place in places]
                renamed[ours] = next(filter(os.path.exists, candidates), candidates[0])
        taken = set(self.columns.values())
        return {name: value for name, value in values.items() if name not in taken} | renamed


def group_rows(rows: Iterable[Row], column: str) -> dict[str, list[Row]]:
    """Group rows by source (all captions of a photo), in the order in which the sources first appear."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return groups


def hold_out(rows: Sequence[Row], column: str, count: int, seed: int) -> tuple[list[Row], list[Row]]:
    """Split rows into those to train on and those of `count` sources drawn at random. Order is kept in both."""
    sources = sorted(group_rows(rows, column))
    held_out = set(random.Random(seed).sample(sources, count))
    return [row for row in rows if row[column] not in held_out], [row for row in rows if row[column] in held_out]


_Records = Iterator[tuple[int, dict[str, Any]]]


def read_records(lines: LineReader, columns: Mapping[str, str], seek: Callable[[], None] = lambda: None) -> _Records:
    """Yield the line number and the values of each row, in the format that the name of the file says.

    Args:
        columns: as in `Manifest`.
        seek: moves `lines` to the first row to read. Called when the header has been read.
    """
    file = lines.file
    suffix = (Path(file.stem).suffix if file.suffix == ".gz" else file.suffix).lower()
    if suffix == ".csv":
        return _with_header(_csv_records(lines), lines, columns, seek)
    if suffix == ".tsv":
        return _with_header(_tsv_records(lines), lines, columns, seek)
    if suffix == ".jsonl":
        seek()
        return _read_jsonl(lines)
    if suffix == ".txt":
        return _read_txt(lines, columns)
    raise ValueError(f"{file}: the name of a manifest must end in .csv, .tsv or .jsonl, with or without .gz.")


def _read_jsonl(lines: LineReader) -> _Records:
    for line in lines:
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            lines.report(f"not valid JSON: {error}")
            continue
        if isinstance(values, dict):
            yield lines.number, values
        else:
            lines.report(f"must be a JSON object, in braces. Received: {line.strip()[:80]}")


def _read_txt(lines: LineReader, columns: Mapping[str, str]) -> _Records:
    if "\t" not in next(iter(LineReader(lines.file, lines.on_problem)), ""):
        yield from _with_header(_csv_records(lines), lines, columns)
        return
    source, target, *_ = columns.values()
    for number, fields in _tsv_records(lines):
        if len(fields) == 2:
            yield number, {source: re.sub(r"#\d+$", "", fields[0]), target: fields[1]}
        else:
            lines.report(f"must be an image, a tab and a caption. Received: {len(fields)} fields", line=number)


def _with_header(
    records: Iterator[tuple[int, list[str]]],
    lines: LineReader,
    columns: Mapping[str, str],
    seek: Callable[[], None] = lambda: None,
) -> _Records:
    _, header = next(records, (0, []))
    header = [name.strip() for name in header]
    if not header:
        raise ValueError(f"{lines.file} is empty; its first line must name the columns.")
    for column in columns.values():
        if header.count(column) != 1:
            what = f"has no column `{column}`" if column not in header else f"has several columns `{column}`"
            raise ValueError(f"{lines.file} {what}. Columns found: {', '.join(header)[:_SHOWN_CHARACTERS]}")
    seek()
    for number, fields in records:
        if len(fields) == len(header):
            yield number, dict(zip(header, fields))
        else:
            lines.report(f"the row has {len(fields)} fields where the header has {len(header)}", line=number)


def _tsv_records(lines: LineReader) -> Iterator[tuple[int, list[str]]]:
    for line in lines:
        if line.strip(" \r\n"):
            yield lines.number, line.rstrip("\r\n").split("\t")


def _csv_records(lines: LineReader) -> Iterator[tuple[int, list[str]]]:
    # The limit is global to the process, so it is only ever raised.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
    reader = csv.reader(lines, strict=True)
    while True:
        start, lines.damaged = lines.number + 1, False
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if lines.number > start:  # where the next row begins is unknown
                message = f"a quoted field that begins in line {start} does not end as it should: {error}"
                raise ValueError(f"{lines.file}: {message} (line {lines.number})") from None
            lines.report(f"not valid CSV: {error}")
            continue
        if fields and not lines.damaged:
            yield start, fields
