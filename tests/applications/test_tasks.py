import json
import subprocess
import sys

import pytest

import attention_apps
from attention_apps.applications import Application, ImageCaptioner
from attention_apps.applications.tasks import TASKS, application_class, load
from tests.applications.captioners import make_captioner


@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_an_application_with_its_verb(task):
    found = application_class(task)
    assert issubclass(found, Application)
    assert found.task == task
    assert callable(getattr(found, TASKS[task][2]))


def test_any_preset_is_loaded_by_its_folder(tmp_path):
    captioner = make_captioner()
    captioner.save(tmp_path / "mine")
    loaded = attention_apps.load(tmp_path / "mine")
    assert type(loaded) is ImageCaptioner
    assert loaded.config.encoder == captioner.config.encoder
    assert loaded.config.decoder == captioner.config.decoder


def test_an_unknown_task_lists_the_known_ones(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"format": 2, "task": "cooking", "config": {}}))
    with pytest.raises(ValueError, match=r"`task` must be one of image_captioning, .*Received: task='cooking'"):
        load(tmp_path)


def test_the_list_of_tasks_is_there_without_tensorflow():
    program = (
        "import sys; sys.modules['tensorflow'] = sys.modules['keras'] = None; "
        "import attention_apps.applications.tasks as tasks; print(len(tasks.TASKS))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(TASKS)
