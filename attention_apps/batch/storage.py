"""The folder of the results, on a disk or in an object store."""

import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from attention_apps.batch.inputs import is_local, local_name
from attention_apps.files import replace_file

FileFormat = Literal["jsonl", "parquet"]
_PART = "part-"


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

    @cached_property
    def _files(self) -> tuple[Any, str]:
        """The file system and the path of the folder in it."""
        import fsspec

        return fsspec.core.url_to_fs(self.folder)

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "file_format": self.file_format}

    def clean(self) -> None:
        """Remove unfinished files of killed processes, and the marks of `count_attempt`."""
        filesystem, path = self._files
        for name in self._names():
            if name.startswith(f".{_PART}"):
                filesystem.rm_file(f"{path}/{name}")

    def url(self, name: str) -> str:
        return f"{self.folder}/{name}"

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
        filesystem.invalidate_cache()
        return [os.path.basename(one) for one in filesystem.ls(path, detail=False)] if filesystem.isdir(path) else []

    def exists(self, name: str) -> bool:
        filesystem, path = self._files
        filesystem.invalidate_cache()
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
        self.write(
            self.part_file(part), _to_parquet(rows, columns) if self.file_format == "parquet" else _to_jsonl(rows)
        )
        return sum(row.get("error") is not None for row in rows)

    def count_errors(self, part: str) -> int:
        """Return how many rows of a finished part have an error."""
        data = self.read(self.part_file(part))
        if self.file_format == "parquet":
            import pyarrow.parquet

            column = pyarrow.parquet.read_table(io.BytesIO(data), columns=["error"]).column(0)
            return len(column) - column.null_count
        return sum(b'"error"' in line and json.loads(line).get("error") is not None for line in data.splitlines())


def _to_jsonl(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


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
