"""Frozen dataclasses from TOML and back. pydantic checks the types; the messages name the key and list the choices."""

import dataclasses
import difflib
import itertools
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import pydantic
import pydantic_core
import tomli_w

MAX_FILE_BYTES = 1_000_000

Config = TypeVar("Config")


def read_config(cls: type[Config], source: str | PathLike | Mapping, overrides: Sequence[str] = ()) -> Config:
    """Build the dataclass `cls`, including nested ones, from a TOML file or a dict.

    Types are strict: a bool is not an integer, but an integer is accepted for a float. TOML has no null, so the text
    `"none"` stands for it where a field allows `None`.

    Args:
        overrides: `key=value` pairs that take precedence, as in `["training.epochs=3", "name=mine"]`. The value is
            TOML; anything that is not valid TOML is taken as plain text.
    """
    data = pydantic_core.to_jsonable_python(source if isinstance(source, Mapping) else _read_toml(Path(source)))
    for override in overrides:
        _apply_override(data, override)
    data = _replace_none(cls, data)
    settings = pydantic.ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    model = pydantic.create_model("Configuration", __config__=settings, config=(cls, ...))
    try:
        # JSON and not Python objects: in its strict mode pydantic takes lists for tuples only from JSON.
        content = pydantic_core.to_json({"config": data}, inf_nan_mode="constants")
        return model.model_validate_json(content).config  # type: ignore[attr-defined]
    except pydantic.ValidationError as error:
        origin = [] if isinstance(source, Mapping) else [str(source)]
        origin = " with ".join([*origin, *overrides])
        message = _describe(cls, data, error.errors(include_url=False))
        raise ValueError(f"{origin}: {message}" if origin else message) from None


def to_dict(config: Any) -> dict[str, Any]:
    """Return the configuration as plain dicts, lists, numbers and texts, for JSON and for `read_config`."""
    return pydantic_core.to_jsonable_python(config)


def to_toml(config: Any) -> str:
    """Return the configuration as TOML text, which `read_config` turns into an equal configuration."""
    return tomli_w.dumps(_without_null(to_dict(config)))


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


def _replace_none(annotation: Any, value: Any) -> Any:
    """Replace `"none"` by `None` wherever the annotation allows `None`."""
    choices = _choices(annotation)
    if value == "none" and types.NoneType in choices:
        return None
    for choice in choices:
        if isinstance(value, dict) and dataclasses.is_dataclass(choice):
            hints = typing.get_type_hints(choice)
            return {name: _replace_none(hints.get(name), entry) for name, entry in value.items()}
        if isinstance(value, list) and typing.get_origin(choice) is tuple:
            members = typing.get_args(choice)
            members = members[:1] * len(value) if members[-1:] == (...,) else members
            return [_replace_none(*pair) for pair in itertools.zip_longest(members, value)][: len(value)]
    return value


def _choices(annotation: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if is_union else (annotation,)


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_without_null(entry) for entry in value]
    return "none" if value is None else value


def _describe(cls: type, data: Any, errors: Sequence[Mapping[str, Any]]) -> str:
    """Describe the first error of pydantic, an unknown key before all others."""
    error = next((error for error in errors if error["type"] == "unexpected_keyword_argument"), errors[0])
    path, value = _locate(data, error["loc"][1:])
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
    if error["type"] == "unexpected_keyword_argument":
        known = [field.name for field in dataclasses.fields(_section(cls, path[:-1]))]
        close = difflib.get_close_matches(str(path[-1]), known, n=1)
        hint = f" Did you mean `{close[0]}`?" if close else ""
        return f"Unknown key `{key}`.{hint} Known keys: {', '.join(known)}"
    if error["type"] == "value_error":  # raised by the dataclass itself
        return f"[{key}] {error['ctx']['error']}" if key else str(error["ctx"]["error"])
    if error["type"] == "missing":
        missing = ".".join(map(str, error["loc"][1:]))
        return f"`{missing}` is missing."
    if not key:
        return f"A configuration must be a table of keys and values: {error['msg']}"
    same = [other["msg"] for other in errors if _locate(data, other["loc"][1:])[0] == path]
    expected = " or ".join(message.removeprefix("Input should be ") for message in same)
    if error["type"] == "literal_error":
        expected = "one of " + error["ctx"]["expected"].replace(" or ", ", ").replace("'", '"')
    text = repr(value)
    return f"`{key}` must be {expected}. Received: {key}={text if len(text) <= 80 else text[:77] + '...'}"


def _locate(data: Any, location: Sequence[str | int]) -> tuple[list[str | int], Any]:
    """Return the path of an error and the value there. The location also names the branch of a union: leave it out."""
    path: list[str | int] = []
    for part in location:
        inside = part in data if isinstance(data, dict) else isinstance(data, list) and isinstance(part, int)
        if not inside or (isinstance(data, list) and isinstance(part, int) and part >= len(data)):
            break
        path.append(part)
        data = data[part]
    return path, data


def _section(cls: type, path: Sequence[str | int]) -> type:
    """The dataclass of the section at a path."""
    for name in path:
        if isinstance(name, str):
            cls = next(_dataclasses_in(typing.get_type_hints(cls).get(name)), cls)
    return cls


def _dataclasses_in(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _dataclasses_in(argument)
