"""Imports go one way, from the layers to the command line."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "attention_apps"
LEVELS = [
    {"layers", "preprocessing", "metrics", "decoding"},
    {"models"},
    {"training", "serving", "plots"},
    {"applications"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem in LEVEL)


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    part = part_of(path)
    for name in imported_modules(path):
        if not name.startswith("attention_apps."):
            continue
        imported = name.split(".")[1]
        if imported in LEVEL and imported != part:
            assert LEVEL[imported] < LEVEL[part], f"{part} imports {name}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "layers").glob("*.py")), ids=lambda path: path.stem)
def test_layers_are_written_with_keras_ops_only(path):
    if path.stem in ("recurrent_kernels", "time_loop", "block_loop"):
        return  # the TensorFlow half of what has a way on every backend
    assert not any(name.split(".")[0] in ("tensorflow", "jax", "torch") for name in imported_modules(path))


@pytest.mark.parametrize(
    "path", sorted((ROOT / "apps").rglob("*.py")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_apps_use_the_public_api_only(path):
    for name in imported_modules(path):
        if name.startswith("attention_apps"):
            assert not any(part.startswith("_") for part in name.split(".")), name


def test_apps_are_programs_and_not_a_package():
    assert not list((ROOT / "apps").rglob("__init__.py"))
