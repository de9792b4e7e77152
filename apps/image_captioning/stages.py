"""A recipe: a configuration, the stages of its training, and the settings of the search to choose from.

A recipe is the TOML of a captioner with two more parts: `[[stages]]`, each with a `name`, what it changes in the
configuration, and perhaps a `start`, the stage to go on from; and `[search]`, lists of values for fields of
`[decoding]`.
"""

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attention_apps.applications.image_captioner import CaptionerConfig
from attention_apps.training.config import read_config


@dataclasses.dataclass(frozen=True)
class Stage:
    """One training, which starts from the stage `start`, by default from the best of those before."""

    name: str
    config: CaptionerConfig
    start: str | None = None


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The stages in their order, and for each field of the search that is to be chosen its values."""

    stages: tuple[Stage, ...]
    search: dict[str, list[Any]]


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Reads a recipe; `overrides`, as `["training.epochs=1"]`, hold for every stage."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no recipe {path}")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: is not valid TOML: {error}") from None
    tables, search = content.pop("stages", []), content.pop("search", {})
    names = [table.pop("name", "") for table in tables]
    if not names or len(set(names)) != len(names) or not all(name.isidentifier() for name in names):
        raise ValueError(f"{path}: `stages` must have names of letters, each its own. Received: {names}")
    starts = [table.pop("start", None) for table in tables]
    for place, start in enumerate(starts):
        if start is not None and start not in names[:place]:
            raise ValueError(f"{path}: `start` must name a stage before. Received: {start!r} in {names[place]!r}")
    try:
        stages = [
            Stage(name, read_config(CaptionerConfig, _merge(content, table), overrides), start)
            for name, start, table in zip(names, starts, tables, strict=True)
        ]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    known = {field.name for field in dataclasses.fields(stages[0].config.decoding)}
    if not set(search) <= known or not all(isinstance(values, list) and values for values in search.values()):
        raise ValueError(f"{path}: `search` must have lists of values for some of {', '.join(sorted(known))}")
    return Recipe(tuple(stages), search)


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        merged[key] = _merge(merged.get(key, {}), value) if isinstance(value, Mapping) else value
    return merged
