"""The inputs of a batch: files, and rows of text files, manifests and Parquet files, at paths or fsspec URLs."""

import glob
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from attention_apps.data.manifest import MAX_LINE_BYTES, CheckedGzipFile, LineReader, Problem, read_records
from attention_apps.files import folder_files, walk_files

Format = Literal["file", "lines", "manifest", "parquet"]
_MANIFESTS = (".csv", ".tsv", ".jsonl")
# Rows of a Parquet file that are in memory at a time.
_PARQUET_ROWS = 64


class Item(str):
    """The name of an input, as it stands in the results, with its contents if it is not a file of that name.

    Attributes:
        contents: the bytes of the input, or `None` if it is a file.
        error: why it cannot be read.
    """

    contents: bytes | None
    error: str | None

    def __new__(cls, name: str, contents: bytes | None = None, error: str | None = None) -> Self:
        item = super().__new__(cls, name)
        item.contents, item.error = contents, error
        return item

    def read(self) -> bytes:
        """Return the bytes of an input that is not a local file. Every failure is an `OSError` or a `ValueError`."""
        if self.error is not None:
            raise ValueError(self.error)
        if self.contents is not None:
            return self.contents
        if "::" in self:  # to fsspec, this means other URLs inside of the first
            raise ValueError(f"{self}: `::` is not allowed in URLs")
        try:
            import fsspec

            with fsspec.open(str(self), "rb") as file:
                return file.read()
        except (OSError, ValueError):
            raise
        except Exception as error:  # libraries of object stores have errors of their own
            raise OSError(f"{self}: {error}") from None


@dataclass(frozen=True)
class Selection:
    """What to take from the rows of manifests and Parquet files.

    Args:
        column: the name of the column.
        is_path: whether a string in this column is the path of a file, relative to the manifest, and not a text.
        lines: whether every line of a text file is an input.
    """

    column: str
    is_path: bool
    lines: bool = False

    def format_of(self, name: str) -> Format:
        """Return how a file is read, by the end of its name."""
        suffix = Path(name.removesuffix(".gz")).suffix.lower()
        if suffix == ".parquet":
            return "parquet"
        return "manifest" if suffix in _MANIFESTS else "lines" if self.lines else "file"

    def item(self, file: str, number: int, value: Any) -> Item:
        """Return the item of a row."""
        name = f"{file}:{number}"
        if isinstance(value, bytes):
            return Item(name, value)
        if not isinstance(value, str):
            return Item(name, error=f"{name}: `{self.column}` must be a text. Received: {value!r:.80}")
        if not self.is_path:
            return Item(name, value.encode("utf-8", "surrogateescape"))
        path = local_name(value.strip())
        if not path or "\0" in path:
            return Item(name, error=f"{name}: `{self.column}` must be the path of a file. Received: {path!r:.80}")
        if is_local(path) and not os.path.isabs(path):
            folder = os.path.dirname(file) if is_local(file) else file.rpartition("/")[0]
            return Item(os.path.join(folder, path))
        # Whoever wrote the manifest must not choose what is fetched from where.
        schemes = {one.partition("://")[0] if "://" in one else "" for one in (path, file)}
        if len(schemes) > 1:
            return Item(name, error=f"{name}: `{self.column}` must be in the same storage. Received: {path!r:.80}")
        return Item(path)


class Place(NamedTuple):
    """A place between two rows of a file: the number of lines or rows before it, and of bytes."""

    number: int = 0
    offset: int = 0


def is_local(name: str) -> bool:
    """Return whether a name is a path of this machine, and not a URL."""
    return "://" not in name


def local_name(name: str) -> str:
    """Return the path of a `file://` URL, and any other name as it is."""
    return name.removeprefix("file://") if name.startswith("file:///") else name


@contextmanager
def open_rows(name: str) -> Iterator[Any]:
    """Open a file of rows, by its path or URL, decompressed if its name ends in .gz."""
    import fsspec

    with fsspec.open(name, "rb") as file:
        if name.endswith(".gz"):
            with CheckedGzipFile(name, "rb", fileobj=file) as stream:
                yield stream
        else:
            yield file


def find_files(name: str, suffixes: Sequence[str]) -> list[str]:
    """Return the files of a folder, a glob pattern or a single name, in order.

    A folder is listed like the commands for single inputs do: files in the order of their names, then those of its
    folders. Hidden files are left out. A name for which nothing is found is returned as it is, and fails later.

    Args:
        suffixes: the endings of the files that are taken from a folder, in lower case.
    """
    name = local_name(name)
    if is_local(name):
        if os.path.isdir(name):
            return folder_files(name, suffixes) or [name]
        found = [] if os.path.exists(name) or not glob.has_magic(name) else sorted(glob.glob(name, recursive=True))
        return [file for one in found for file in find_files(one, suffixes)] or [name]
    import fsspec

    filesystem, path = fsspec.core.url_to_fs(name)
    if glob.has_magic(path):
        visible = (one for one in sorted(filesystem.glob(path)) if not os.path.basename(one).startswith("."))
        found = [filesystem.unstrip_protocol(one) for one in visible]
        return [file for one in found for file in find_files(one, suffixes)] or [name]
    if not filesystem.isdir(path):
        return [name]
    return [filesystem.unstrip_protocol(one) for one in walk_files(filesystem.walk(path), suffixes)] or [name]


def places(name: str, selection: Selection) -> Iterator[Place]:
    """Yield the place of each row of a file that is not an input itself."""
    if selection.format_of(name) == "parquet":
        with _parquet_file(name) as file:
            found = file.schema_arrow.names
            if selection.column not in found:
                raise ValueError(f"{name} has no column `{selection.column}`. Columns found: {', '.join(found)}")
            yield from map(Place, range(file.metadata.num_rows))
        return
    with closing(_rows(name, selection, Place())) as rows:
        for place, _ in rows:
            yield place


def read_rows(name: str, selection: Selection, first: Place, count: int) -> Iterator[Item]:
    """Yield the items of `count` rows of a file, from a place on."""
    if selection.format_of(name) != "parquet":
        with closing(_rows(name, selection, first)) as rows:
            yield from islice((item for _, item in rows), count)
        return
    with _parquet_file(name) as file:
        start, groups, skipped = 0, [], 0
        for group in range(file.num_row_groups):
            end = start + file.metadata.row_group(group).num_rows
            if end <= first.number:
                skipped = end
            elif start < first.number + count:
                groups.append(group)
            start = end
        batches = file.iter_batches(_PARQUET_ROWS, row_groups=groups, columns=[selection.column])
        values = (value for batch in batches for value in batch.column(0).to_pylist())
        begin = first.number - skipped
        for number, value in enumerate(islice(values, begin, begin + count), first.number + 1):
            yield selection.item(name, number, value)


@contextmanager
def _parquet_file(name: str) -> Iterator[Any]:
    import pyarrow.parquet

    with open_rows(name) as stream:
        yield pyarrow.parquet.ParquetFile(stream)


def _rows(name: str, selection: Selection, first: Place) -> Generator[tuple[Place, Item]]:
    """Yield the items of a text file or a manifest, each with the place where it begins."""
    with open_rows(name) as stream:
        if selection.format_of(name) == "lines":
            stream.seek(first.offset)
            place = first
            while line := stream.readline(MAX_LINE_BYTES + 1):
                number, offset, error = place.number + 1, place.offset + len(line), None
                if len(line) > MAX_LINE_BYTES:
                    error = f"{name}, line {number}: the line is longer than {MAX_LINE_BYTES:,} bytes"
                    while line and not line.endswith(b"\n"):
                        line = stream.readline(MAX_LINE_BYTES)
                        offset += len(line)
                yield place, Item(f"{name}:{number}", None if error else line, error)
                place = Place(number, offset)
            return
        yield from _manifest_rows(name, stream, selection, first)


class _StreamLines(LineReader):
    """The lines of an open file."""

    def __init__(self, name: str, stream: Any):
        super().__init__(Path(name), lambda problem: self.problems.append((problem, self.place)))
        self.stream = stream
        self.problems: list[tuple[Problem, Place]] = []

    def __iter__(self) -> Iterator[str]:
        return self.lines(self.stream)

    @property
    def place(self) -> Place:
        return Place(self.number, self.stream.tell())


def _manifest_rows(name: str, stream: Any, selection: Selection, first: Place) -> Iterator[tuple[Place, Item]]:
    lines = _StreamLines(name, stream)
    place = Place()

    def seek() -> None:  # to the first row, or, if that is what was asked for, stay after the header
        nonlocal place
        if first != Place():
            stream.seek(first.offset)
            lines.number = first.number
        place = lines.place

    def bad_rows() -> Iterator[tuple[Place, Item]]:
        nonlocal place
        for problem, after in lines.problems:
            yield place, Item(f"{name}:{problem.line}", error=f"{name}, line {problem.line}: {problem.message}")
            place = after
        lines.problems.clear()

    for number, values in read_records(lines, {"source": selection.column}, seek):
        after = lines.place
        yield from bad_rows()
        if selection.column in values:
            item = selection.item(name, number, values[selection.column])
        else:
            found = ", ".join(values)[:200]
            item = Item(f"{name}:{number}", error=f"{name}, line {number}: no `{selection.column}`. Found: {found}")
        yield place, item
        place = after
    yield from bad_rows()
