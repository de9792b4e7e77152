"""The modules of apps/, which are programs and not a package."""

import importlib
import sys
from pathlib import Path

APPS = Path(__file__).parents[2] / "apps"


def load(name, folder=""):
    """Imports a module of apps/ or of one of its folders, without leaving its name behind."""
    places = [str(APPS / folder), str(APPS)]
    names = {path.stem for path in APPS.rglob("*.py")}
    before = {module: sys.modules.pop(module) for module in names if module in sys.modules}
    path = list(sys.path)
    sys.path[:0] = places
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = path
        for module in names:
            sys.modules.pop(module, None)
        sys.modules.update(before)


def run_recipe(task, step, *arguments):
    """Runs a step as `run.py` of the task does, in this process: TensorFlow takes seconds to be imported."""
    load("run", task).RECIPE.main("", [step, *map(str, arguments)])
