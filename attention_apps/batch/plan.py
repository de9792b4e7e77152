"""The plan of a batch: its settings, and which inputs each part of the results is made from.

The plan is written before the first part. A rerun reads it and makes only the parts that are missing, so that the same
inputs are in the same part, however often a run is interrupted.
"""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attention_apps.batch.inputs import Item, Place, Selection, is_local, places, read_rows
from attention_apps.batch.storage import Storage

PLAN = "_plan.json"
_FORMAT = 1


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

    def items(self, selection: Selection) -> Iterator[Item]:
        """Yield the inputs."""
        if self.first is None:
            yield Item(self.path)
        else:
            yield from read_rows(self.path, selection, self.first, self.count)

    def to_json(self) -> list[Any]:
        return [self.path] if self.first is None else [self.path, *self.first, self.count]

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> "Span":
        path, *rows = values
        return cls(path, Place(*rows[:2]), rows[2]) if rows else cls(path)


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
            yield from span.items(selection)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "spans": [span.to_json() for span in self.spans]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Part":
        return cls(values["name"], tuple(map(Span.from_json, values["spans"])))


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


def open_plan(storage: Storage, settings: Mapping[str, Any], make_parts: Callable[[], Iterator[Part]]) -> Plan:
    """Read the plan of a folder of results, or makes and writes it.

    Raises:
        ValueError: the folder has results of other settings, or a file of rows has changed since the plan was made.
    """
    if storage.exists(PLAN):
        plan = _read(storage)
        _check_settings(storage, plan.settings, settings)
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
    number, spans, room = 0, [], size
    for span in _spans(files, selection, size, whole):
        spans.append(span)
        room -= span.count
        if not room:
            yield Part(part_name(number), tuple(spans))
            number, spans, room = number + 1, [], size
    if spans:
        yield Part(part_name(number), tuple(spans))


def part_name(number: int) -> str:
    """Return the name of a part, so that the order of the names is that of the parts."""
    return f"part-{number:07d}"


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
        raise ValueError(f"{storage.url(PLAN)} is not a plan of this version: {error}") from None


def _check_settings(storage: Storage, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    if settings_hash(old) == settings_hash(new):
        return
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    shown = "; ".join(f"{name} was {old.get(name)!r:.200} and is {new.get(name)!r:.200}" for name in names)
    raise ValueError(f"{storage.folder} has results of other settings ({shown}). Use another output folder.")
