"""The folder of the results: its plan, and the files of the parts, on a disk or in an object store.

The plan has the settings of a batch, and which inputs each part of the results is made from. It is written before the
first part. A rerun reads it and makes only the parts that are missing, so that the same inputs are in the same part,
however often a run is interrupted.
"""

import hashlib
import io
import itertools
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from attention_apps.batch.inputs import Item, Place, Selection, is_local, local_name, places, read_rows
from attention_apps.files import replace_file

PLAN = "_plan.json"
_FORMAT = 1
FileFormat = Literal["jsonl", "parquet"]
_PART = "part-"


@dataclass(frozen=True)
class Span:
    """A file that is an input, or some rows of a file, each of which is an input.

    Args:
        path: a path or URL.
        first: the place of the first row; `None` if the file is an input itself.
        count: the number of inputs.
    """

    path: str
    first: Place | None = None
    count: int = 1


@dataclass(frozen=True)
class Part:
    """Inputs whose rows are in one file of the results.

    Args:
        name: the name of the file without its ending.
    """

    name: str
    spans: tuple[Span, ...]

    @property
    def count(self) -> int:
        """The number of inputs."""
        return sum(span.count for span in self.spans)

    def items(self, selection: Selection) -> Iterator[Item]:
        """Yield the inputs in order."""
        for span in self.spans:
            if span.first is None:
                yield Item(span.path)
            else:
                yield from read_rows(span.path, selection, span.first, span.count)

    def to_json(self) -> dict[str, Any]:
        spans = [[span.path, *(() if span.first is None else (*span.first, span.count))] for span in self.spans]
        return {"name": self.name, "spans": spans}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Part":
        spans = (Span(path, Place(*rows[:2]), rows[2]) if rows else Span(path) for path, *rows in values["spans"])
        return cls(values["name"], tuple(spans))


@dataclass(frozen=True)
class Plan:
    """The parts of a batch.

    Args:
        settings: everything that the results depend on besides the contents of the inputs, as JSON values.
        parts: the parts, in the order of the inputs.
        versions: for each file of rows, what tells whether it has changed.
    """

    settings: Mapping[str, Any]
    parts: tuple[Part, ...]
    versions: Mapping[str, str]


class Storage:
    """A folder of results: parts, and the plan that they are made by.

    A file appears as a whole or not at all, and replaces one of the same name.

    Args:
        folder: a path or an fsspec URL.
        file_format: the format of the parts.
    """

    def __init__(self, folder: str, file_format: FileFormat):
        folder = local_name(folder)
        self.folder = os.path.abspath(folder) if is_local(folder) else folder.rstrip("/")
        self.file_format = file_format

    @property
    def _files(self) -> tuple[Any, str]:
        """The file system, which forgets what it has listed before, and the path of the folder in it."""
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(self.folder)
        filesystem.invalidate_cache()
        return filesystem, path

    def clean(self) -> None:
        """Remove unfinished files of killed processes, and the marks of `count_attempt`."""
        filesystem, path = self._files
        for name in self._names():
            if name.startswith(f".{_PART}"):
                filesystem.rm_file(f"{path}/{name}")

    def part_file(self, part: str) -> str:
        """Return the name of the file of a part."""
        return f"{part}.{self.file_format}"

    def parts(self) -> set[str]:
        """Return the names of the finished parts."""
        ending = f".{self.file_format}"
        found = (name for name in self._names() if name.startswith(_PART) and name.endswith(ending))
        return {name.removesuffix(ending) for name in found}

    def count_attempt(self, part: str) -> int:
        """Mark that a worker begins to make a part, and returns how often that has happened since `clean`."""
        number = 1
        while self.exists(f".{part}.{number}"):
            number += 1
        self.write(f".{part}.{number}", b"")
        return number

    def _names(self) -> list[str]:
        filesystem, path = self._files
        return [os.path.basename(one) for one in filesystem.ls(path, detail=False)] if filesystem.isdir(path) else []

    def exists(self, name: str) -> bool:
        filesystem, path = self._files
        return filesystem.exists(f"{path}/{name}")

    def read(self, name: str) -> bytes:
        filesystem, path = self._files
        return filesystem.cat_file(f"{path}/{name}")

    def write(self, name: str, data: bytes) -> None:
        if is_local(self.folder):
            replace_file(Path(self.folder, name), data)
            return
        filesystem, path = self._files
        filesystem.pipe_file(f"{path}/{name}", data)

    def write_part(self, part: str, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> int:
        """Write the rows of a part and returns how many of them have an error.

        Args:
            columns: the keys that a row of this task has besides those of every row; columns of Parquet files.
        """
        rows = list(rows)
        if self.file_format == "parquet":
            data = _to_parquet(rows, columns)
        else:
            data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        self.write(self.part_file(part), data)
        return sum(row.get("error") is not None for row in rows)

    def count_errors(self, part: str) -> int:
        """Return how many rows of a finished part have an error."""
        data = self.read(self.part_file(part))
        if self.file_format == "parquet":
            import pyarrow.parquet

            column = pyarrow.parquet.read_table(io.BytesIO(data), columns=["error"]).column(0)
            return len(column) - column.null_count
        return sum(b'"error"' in line and json.loads(line).get("error") is not None for line in data.splitlines())


def open_plan(storage: Storage, settings: Mapping[str, Any], make_parts: Callable[[], Iterator[Part]]) -> Plan:
    """Read the plan of a folder of results, or make and write it.

    Raises:
        ValueError: the folder has results of other settings, or a file of rows has changed since the plan was made.
    """
    if storage.exists(PLAN):
        plan = _read(storage)
        if settings_hash(plan.settings) != settings_hash(settings):
            old = plan.settings
            names = sorted(name for name in {*old, *settings} if old.get(name) != settings.get(name))
            changes = (f"{name} was {old.get(name)!r:.200} and is {settings.get(name)!r:.200}" for name in names)
            raise ValueError(
                f"{storage.folder} has results of other settings ({'; '.join(changes)}). Use another output folder."
            )
        for path, version in plan.versions.items():
            if file_version(path) != version:
                raise ValueError(f"{path} has changed since the first run. Use another output folder for the new rows.")
        return plan
    if storage.parts():
        raise ValueError(f"{storage.folder} has results, but no {PLAN}. Use another output folder.")
    parts = tuple(make_parts())
    paths = {span.path for part in parts for span in part.spans if span.first is not None}
    plan = Plan(settings, parts, {path: file_version(path) for path in sorted(paths)})
    storage.write(PLAN, _to_bytes(plan))
    return plan


def make_parts(files: Sequence[str], selection: Selection, size: int, whole: Collection[str] = ()) -> Iterator[Part]:
    """Yield parts of `size` inputs each; the last one may have fewer.

    Args:
        files: paths and URLs, in order.
        whole: files that are inputs themselves, although every line of the others is one.
    """
    # The order of the names is that of the parts.
    names = (f"{_PART}{number:07d}" for number in itertools.count())
    spans, room = [], size
    for span in _spans(files, selection, size, whole):
        spans.append(span)
        room -= span.count
        if not room:
            yield Part(next(names), tuple(spans))
            spans, room = [], size
    if spans:
        yield Part(next(names), tuple(spans))


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Return the SHA-256 hash of settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def file_version(path: str) -> str:
    """Return the size of a file, and when it was written or which version it is, as far as its storage tells."""
    if is_local(path):
        status = os.stat(path)
        return f"{status.st_size} {status.st_mtime_ns}"
    import fsspec

    filesystem, inner = fsspec.core.url_to_fs(path)
    info = filesystem.info(inner)
    return f"{info.get('size')} {info.get('ETag') or info.get('etag') or info.get('LastModified') or info.get('mtime')}"


def _spans(files: Sequence[str], selection: Selection, size: int, whole: Collection[str]) -> Iterator[Span]:
    """Yield spans that end where a part of `size` inputs ends."""
    room = size
    for path in files:
        if path in whole or selection.format_of(path) == "file":
            yield Span(path)
            room = room - 1 or size
            continue
        first, count = Place(), 0
        for place in places(path, selection):
            first = first if count else place
            count += 1
            if count == room:
                yield Span(path, first, count)
                room, count = size, 0
        if count:
            yield Span(path, first, count)
            room -= count


def _to_bytes(plan: Plan) -> bytes:
    """Return a plan as JSON, with a line for each part."""
    head = {
        "format": _FORMAT,
        "settings": plan.settings,
        "settings_sha256": settings_hash(plan.settings),
        "versions": plan.versions,
    }
    lines = ",\n".join(json.dumps(part.to_json()) for part in plan.parts)
    return f'{json.dumps(head, indent=1)[:-2]},\n "parts": [\n{lines}\n]}}\n'.encode()


def _read(storage: Storage) -> Plan:
    try:
        values = json.loads(storage.read(PLAN))
        if values["format"] != _FORMAT or values["settings_sha256"] != settings_hash(values["settings"]):
            raise ValueError("its format or its hash is wrong")
        return Plan(values["settings"], tuple(map(Part.from_json, values["parts"])), values["versions"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{storage.folder}/{PLAN} is not a plan of this version: {error}") from None


def _to_parquet(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """Return rows as a Parquet file. All parts have the same columns of the same types, whatever their rows."""
    import pyarrow
    import pyarrow.parquet

    types = _column_types(pyarrow)
    names = [name for name in types if name not in _TASK_COLUMNS or name in columns]
    schema = pyarrow.schema([(name, types[name]) for name in names])
    # Names of files may be bytes that are no UTF-8, which JSON can hold and Parquet cannot.
    valid = [{**row, "source": row["source"].encode("utf-8", "backslashreplace").decode()} for row in rows]
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(valid, schema), buffer)
    return buffer.getvalue()


_TASK_COLUMNS = ("tokens", "words", "seconds", "copied", "passages", "read_whole", "source_tokens")


def _column_types(arrow: Any) -> dict[str, Any]:
    text, number, flag = arrow.string(), arrow.float64(), arrow.bool_()
    word = {"word": text, "start": number, "end": number, "confidence": number}
    return {
        "source": text,
        "text": text,
        "score": number,
        "confidence": number,
        "unsure": flag,
        "alternatives": arrow.list_(arrow.struct({"text": text, "score": number})),
        "tokens": arrow.list_(text),
        "words": arrow.list_(arrow.struct(word)),
        "seconds": number,
        "copied": arrow.list_(flag),
        "passages": arrow.list_(arrow.list_(arrow.int64())),
        "read_whole": flag,
        "source_tokens": arrow.list_(text),
        "error": text,
    }
