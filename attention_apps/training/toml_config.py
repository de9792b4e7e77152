"""Frozen dataclasses from TOML and back: unknown keys and wrong types are errors that name the key."""

import dataclasses
import difflib
import json
import math
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

MAX_FILE_BYTES = 1_000_000


def read_config(cls: type, source: str | PathLike | Mapping, overrides: Sequence[str] = ()) -> Any:
    """Builds the dataclass `cls`, nested ones included, from a TOML file or a dict.

    TOML has no null, so the text `"none"` stands for it where a field allows `None`.

    Args:
        overrides: `key=value` pairs that win over the file, as in `["training.epochs=3", "name=mine"]`; the
            value is TOML, and what is not valid TOML is taken as a plain text.
    """
    data = _plain_copy(source if isinstance(source, Mapping) else _read_toml(Path(source)))
    for override in overrides:
        _apply_override(data, override)
    try:
        return _convert(cls, data, key="")
    except _ConfigError as error:
        origin = [] if isinstance(source, Mapping) else [str(source)]
        origin = " with ".join([*origin, *overrides])
        raise ValueError(f"{origin}: {error}" if origin else str(error)) from None


def to_dict(config: Any) -> dict[str, Any]:
    """The configuration as plain dicts, lists, numbers and texts, fit for JSON and for `read_config`."""
    return {field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(config)}


def to_toml(config: Any) -> str:
    """The configuration as TOML text that `read_config` turns into an equal one."""
    return "\n".join(_toml_table(to_dict(config), prefix="")).strip() + "\n"


class _ConfigError(ValueError):
    """A mistake in the configuration; `read_config` puts the file's name before it."""


# Reading


def _read_toml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"There is no configuration file {path}")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"{path}: a configuration file must have at most {MAX_FILE_BYTES:,} bytes.")
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: is not valid TOML: {error}") from None


def _plain_copy(value: Any) -> Any:
    return {key: _plain_copy(entry) for key, entry in value.items()} if isinstance(value, Mapping) else value


def _apply_override(data: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    names = [name.strip() for name in key.split(".")]
    if not equals or not all(names):
        raise ValueError(f"An override must have the form key=value or section.key=value. Received: {override!r}")
    for depth, name in enumerate(names[:-1], start=1):
        data = data.setdefault(name, {})
        if not isinstance(data, dict):
            raise ValueError(f"`{'.'.join(names[:depth])}` is not a section. Received: {override!r}")
    data[names[-1]] = _parse_value(text.strip())


def _parse_value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return parsed["value"] if parsed.keys() == {"value"} else text


def _convert(annotation: Any, value: Any, key: str) -> Any:
    """Checks a value against an annotation; makes lists tuples, tables dataclasses, and integers floats."""
    if dataclasses.is_dataclass(annotation):
        return _convert_dataclass(annotation, value, key)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(annotation, value, key)
    if origin is typing.Literal:
        if value not in arguments or isinstance(value, bool):
            raise _wrong(key, annotation, value)
        return value
    if origin is tuple:
        return _convert_tuple(annotation, value, key)
    if (origin or annotation) is dict:
        return _convert_dict(annotation, value, key)
    return _convert_scalar(annotation, value, key)


def _convert_dataclass(cls: type, value: Any, key: str) -> Any:
    if isinstance(value, cls):
        return value
    if not isinstance(value, Mapping):
        raise _wrong(key, cls, value)
    known = [field.name for field in dataclasses.fields(cls)]
    for name in value:
        if name not in known:
            raise _unknown(_join(key, name), name, known)
    hints = typing.get_type_hints(cls)
    entries = {name: _convert(hints[name], entry, _join(key, name)) for name, entry in value.items()}
    for field in dataclasses.fields(cls):
        has_default = not (field.default is field.default_factory is dataclasses.MISSING)
        if field.name not in entries and not has_default:
            raise _ConfigError(f"`{_join(key, field.name)}` is missing; it must be {_describe(hints[field.name])}.")
    try:
        return cls(**entries)
    except ValueError as error:
        raise _ConfigError(f"[{key}] {error}" if key else str(error)) from None


def _convert_union(annotation: Any, value: Any, key: str) -> Any:
    members = typing.get_args(annotation)
    if types.NoneType in members and (value is None or value == "none"):
        return None
    members = [member for member in members if member is not types.NoneType]
    if len(members) == 1 and isinstance(value, Mapping):
        return _convert(members[0], value, key)  # the message about an entry says more than "must be a section"
    for member in members:
        try:
            return _convert(member, value, key)
        except _ConfigError:
            continue
    raise _wrong(key, annotation, value)


def _convert_tuple(annotation: Any, value: Any, key: str) -> tuple:
    members = typing.get_args(annotation)
    if not isinstance(value, list | tuple):
        raise _wrong(key, annotation, value)
    if members[-1] is Ellipsis:
        members = (members[0],) * len(value)
    if len(members) != len(value):
        raise _wrong(key, annotation, value)
    return tuple(_convert(member, entry, f"{key}[{i}]") for i, (member, entry) in enumerate(zip(members, value)))


def _convert_dict(annotation: Any, value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(key, annotation, value)
    arguments = typing.get_args(annotation)
    member = arguments[1] if arguments else Any
    return {name: _convert(member, entry, _join(key, name)) for name, entry in value.items()}


def _convert_scalar(annotation: Any, value: Any, key: str) -> Any:
    if annotation is Any:
        return value
    if annotation is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if annotation is Path and isinstance(value, str | Path):
        return Path(value)
    if annotation in (bool, int, str) and type(value) is annotation:
        return value
    raise _wrong(key, annotation, value)


# Messages


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _unknown(key: str, name: str, known: Sequence[str]) -> _ConfigError:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean `{close[0]}`?" if close else ""
    return _ConfigError(f"Unknown key `{key}`.{hint} Known keys: {', '.join(known)}")


def _wrong(key: str, annotation: Any, value: Any) -> _ConfigError:
    text = repr(value)
    text = text if len(text) <= 80 else text[:77] + "..."
    return _ConfigError(
        f"`{key}` must be {_describe(annotation)}. Received: {key}={text}"
        if key
        else f"A configuration must be a table of keys and values. Received: {text}"
    )


_SCALAR_NAMES = {
    bool: "true or false",
    int: "an integer",
    float: "a finite number",
    str: "a text",
    Path: "a path",
}


def _describe(annotation: Any) -> str:
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if dataclasses.is_dataclass(annotation):
        return "a section with keys " + ", ".join(field.name for field in dataclasses.fields(annotation))
    if origin in (typing.Union, types.UnionType):
        return " or ".join('"none"' if member is types.NoneType else _describe(member) for member in members)
    if origin is typing.Literal:
        return "one of " + ", ".join(json.dumps(member) for member in members)
    if origin is tuple:
        if members[-1] is Ellipsis:
            return f"a list (each entry {_describe(members[0])})"
        return f"a list of {len(members)} ({', '.join(_describe(member) for member in members)})"
    return _SCALAR_NAMES.get(annotation, "a section")


# Writing


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_dict(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value


def _toml_table(table: Mapping[str, Any], prefix: str) -> list[str]:
    """The lines of a table: its own values first, because what follows a header belongs to that section."""
    lines = [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in table.items() if not isinstance(value, dict)]
    for key, value in table.items():
        if isinstance(value, dict):
            name = _join(prefix, _toml_key(key))
            lines += ["", f"[{name}]", *_toml_table(value, name)]
    return lines


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_text(key)


def _toml_value(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _toml_text(value)
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(entry) for entry in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_key(key)} = {_toml_value(entry)}" for key, entry in value.items()) + "}"
    return repr(value)


def _toml_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
