"""The modules of the speech recipe, which is a folder of programs and no package."""

import importlib
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "apps" / "speech_recognition"


def load(name):
    """A module of the recipe, under its own name for as long as it is being loaded only."""
    before = {module: sys.modules.pop(module) for module in _names() if module in sys.modules}
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))
        for module in _names():
            sys.modules.pop(module, None)
        sys.modules.update(before)


def _names():
    return [path.stem for path in FOLDER.glob("*.py")]
