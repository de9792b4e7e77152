"""The notebooks of docs/tutorials. `python -m tests.tutorials` runs them again and stores their outputs."""

import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
SECONDS_PER_CELL = 900


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def run(notebook, folder):
    """Runs all cells in a folder and puts their outputs into the notebook. An error in a cell is raised."""
    client = NotebookClient(
        notebook, timeout=SECONDS_PER_CELL, record_timing=False, resources={"metadata": {"path": folder}}
    )
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)  # set by our own import; the kernel takes it for the user's choice
    client.execute(env=environment)


def main():
    for path in TUTORIALS:
        notebook = read(path)
        with tempfile.TemporaryDirectory() as folder:
            run(notebook, folder)
        notebook.metadata.language_info = {"name": "python"}  # not the version of the Python that ran it
        nbformat.write(notebook, path)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
