"""Manifests: CSV, TSV or JSONL files, optionally compressed, with a source and its target in each row."""

import csv
import json
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from attention_apps.data.line_reader import MAX_LINE_BYTES, LineReader, Problem, raise_problem

CAPTION_FILES = ("captions.csv", "captions.tsv", "captions.jsonl", "captions.txt", "*.token.txt")
IMAGE_FOLDERS = ("", "images", "Images")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a manifest: its values, `row["caption"]`, and its file and line."""

    values: Mapping[str, Any]
    file: Path
    line: int

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
        file = _captions_file(Path(self.path)) if Path(self.path).is_dir() else Path(self.path)
        lines = LineReader(file, on_problem)
        for line, values in _reader(file)(lines, self.columns):
            message = self._bad_value(values)
            if message:
                lines.report(message, line=line)
            else:
                yield Row(self._rename(values, file.parent), file, line)

    def _bad_value(self, values: Mapping[str, Any]) -> str | None:
        for column in self.columns.values():
            if column not in values:
                return f"there is no `{column}`. Found: {', '.join(values)}"
            if not isinstance(values[column], str):
                return f"`{column}` must be a text. Received: {json.dumps(values[column])[:80]}"
            if re.search("[\0\ud800-\udfff]", values[column]):
                return f"`{column}` has a NUL character or half of a surrogate pair"
        return None

    def _rename(self, values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        renamed = {ours: values[theirs].strip() for ours, theirs in self.columns.items()}
        for ours in self.paths:
            renamed[ours] = renamed[ours] and self._locate(renamed[ours], folder)
        taken = set(self.columns.values())
        return {name: value for name, value in values.items() if name not in taken} | renamed

    def _locate(self, name: str, folder: Path) -> str:
        places = IMAGE_FOLDERS if Path(self.path).is_dir() else IMAGE_FOLDERS[:1]
        candidates = [os.path.join(folder, place, name) for place in places]
        return next(filter(os.path.exists, candidates), candidates[0])


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


def _reader(file: Path) -> Callable[[LineReader, Mapping[str, str]], _Records]:
    readers = {".csv": _read_csv, ".tsv": _read_tsv, ".jsonl": _read_jsonl, ".txt": _read_txt}
    suffix = Path(file.stem).suffix if file.suffix == ".gz" else file.suffix
    if suffix.lower() not in readers:
        raise ValueError(f"{file}: the name of a manifest must end in .csv, .tsv or .jsonl, with or without .gz.")
    return readers[suffix.lower()]


def read_records(lines: LineReader, columns: Mapping[str, str], seek: Callable[[], None]) -> _Records:
    """Yield line number and values of the rows of a .csv, .tsv or .jsonl manifest, from a place in the middle.

    Args:
        columns: as in `Manifest`.
        seek: moves `lines` to the place. Called when the header has been read.
    """
    read = _reader(lines.file)
    if read is _read_jsonl:
        seek()
        yield from _read_jsonl(lines, columns)
        return
    records = _csv_records(lines) if read is _read_csv else _tsv_records(lines)

    def header_and_rest() -> Iterator[tuple[int, list[str]]]:
        yield from islice(records, 1)
        seek()
        yield from records

    yield from _with_header(header_and_rest(), lines, columns)


def _captions_file(folder: Path) -> Path:
    names = [*CAPTION_FILES, *(f"{name}.gz" for name in CAPTION_FILES)]
    found = sorted({file for name in names for file in folder.glob(name)})
    if len(found) != 1:
        what = f"several captions files ({', '.join(file.name for file in found)})" if found else "no captions file"
        raise ValueError(f"The folder {folder} has {what}. It needs one of: {', '.join(CAPTION_FILES)}")
    return found[0]


def _read_jsonl(lines: LineReader, columns: Mapping[str, str]) -> _Records:
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


def _read_csv(lines: LineReader, columns: Mapping[str, str]) -> _Records:
    return _with_header(_csv_records(lines), lines, columns)


def _read_tsv(lines: LineReader, columns: Mapping[str, str]) -> _Records:
    return _with_header(_tsv_records(lines), lines, columns)


def _read_txt(lines: LineReader, columns: Mapping[str, str]) -> _Records:
    if "\t" not in next(iter(LineReader(lines.file, lines.on_problem)), ""):
        yield from _read_csv(lines, columns)
        return
    source, target, *_ = columns.values()
    for number, fields in _tsv_records(lines):
        if len(fields) == 2:
            yield number, {source: re.sub(r"#\d+$", "", fields[0]), target: fields[1]}
        else:
            lines.report(f"must be an image, a tab and a caption. Received: {len(fields)} fields", line=number)


def _with_header(records: Iterator[tuple[int, list[str]]], lines: LineReader, columns: Mapping[str, str]) -> _Records:
    _, header = next(records, (0, []))
    header = [name.strip() for name in header]
    if not header:
        raise ValueError(f"{lines.file} is empty; its first line must name the columns.")
    for column in columns.values():
        if header.count(column) != 1:
            what = f"has no column `{column}`" if column not in header else f"has several columns `{column}`"
            raise ValueError(f"{lines.file} {what}. Columns found: {', '.join(header)}")
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
