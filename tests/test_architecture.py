"""Imports go one way, from the layers to the command line."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "attention_apps"
LEVELS = [
    {"layers", "preprocessing", "metrics", "decoding"},
    {"models"},
    {"data"},
    {"training", "serving", "plots"},
    {"applications"},
    {"batch"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
# Modules that everything may import and that import nothing of the package.
SHARED = {"__init__", "_version", "checks", "constants", "files", "terminal"}
MODULES = sorted(PACKAGE.rglob("*.py"))
# The layers that may import TensorFlow, and why. All others use `keras.ops` only.
TENSORFLOW_IN_LAYERS = {
    "recurrent_kernels": "fast LSTM and GRU; `Recurrent` runs the layers of Keras on other backends",
    "sequence_ops": "`tf.while_loop` with a TensorArray; `ops.scan` or a Python loop on other backends",
}


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
    assert part in LEVEL or part in SHARED, f"{part} must be in LEVELS or SHARED"
    for name in imported_modules(path):
        imported = name.split(".")[1] if name.startswith("attention_apps.") else None
        if imported is None or imported == part or imported in SHARED:
            continue
        assert imported in LEVEL, f"{part} imports {name}, not from the subpackage that has it"
        assert LEVEL[imported] < LEVEL.get(part, -1), f"{part} imports {name}"


def test_every_file_of_the_layers_is_written_with_keras_ops_only():
    found = {
        path.stem: imported
        for path in (PACKAGE / "layers").rglob("*.py")
        if (imported := {name.split(".")[0] for name in imported_modules(path)} & {"tensorflow", "jax", "torch"})
    }
    assert found == {name: {"tensorflow"} for name in TENSORFLOW_IN_LAYERS}


def test_importing_the_layers_imports_no_backend_of_their_own():
    """`recurrent_kernels` does at its top; so it may only be imported inside of functions."""
    for path in (PACKAGE / "layers").rglob("*.py"):
        at_top = ast.parse(path.read_text(encoding="utf-8")).body
        names = [alias.name for node in at_top if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module for node in at_top if isinstance(node, ast.ImportFrom)]
        names = [name for name in names if path.stem != "recurrent_kernels" or name != "tensorflow"]
        assert not {"tensorflow", "attention_apps.layers.recurrent_kernels"} & set(names), path.name


def imports_from_package(path):
    """Module and name of everything that is imported from this package."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "attention_apps":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name.split(".")[0] == "attention_apps")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "apps").rglob("*.py")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_apps_import_public_names_only(path):
    for module, name in imports_from_package(path):
        public = getattr(importlib.import_module(module), "__all__", None)
        assert public is not None, f"{path.name}: {module} has no __all__"
        assert name is None or name in public, f"{path.name}: {name} is not in __all__ of {module}"
        if name is not None:
            getattr(importlib.import_module(module), name)


def test_apps_are_programs_and_not_a_package():
    assert not list((ROOT / "apps").rglob("__init__.py"))
