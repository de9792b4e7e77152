"""The notebooks of docs/tutorials are stored with their outputs; with `--tutorials` they are run, too."""

import pytest

from attention_apps.applications.tasks import TASKS
from tests.tutorials import TUTORIALS, code_cells, read, run

MAX_BYTES = 200_000

each_tutorial = pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)


def output_kinds(notebook):
    """The kinds of output of each cell: `stream`, `display_data` or `execute_result`."""
    return [sorted({output.output_type for output in cell.outputs}) for cell in code_cells(notebook)]


def test_every_task_has_a_tutorial():
    assert {path.stem for path in TUTORIALS} == set(TASKS)


@each_tutorial
def test_a_tutorial_is_stored_with_the_outputs_of_one_run(path):
    cells = code_cells(read(path))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs
    assert not any(output.output_type == "error" or output.get("name") == "stderr" for output in outputs)
    assert path.stat().st_size < MAX_BYTES


@pytest.mark.slow
@each_tutorial
def test_a_tutorial_runs(path, request, tmp_path):
    if not request.config.getoption("--tutorials"):
        pytest.skip("`make test-all` runs the tutorials")
    stored, notebook = read(path), read(path)
    run(notebook, tmp_path)
    assert output_kinds(notebook) == output_kinds(stored)
