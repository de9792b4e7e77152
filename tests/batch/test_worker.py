import json
import os

import pytest

from attention_apps.batch.inputs import Selection
from attention_apps.batch.plan import PLAN, Part, Span
from attention_apps.batch.storage import Storage
from attention_apps.batch.worker import Job, Worker

PART = Part("part-0000000", (Span("a.jpg"), Span("bad.jpg")))


def answer(items):
    for item in items:
        yield {"source": item, "text": None, "error": "It is bad"} if "bad" in item else {"source": item, "text": "dog"}


@pytest.fixture
def make_worker(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.chdir(tmp_path)
    storage = Storage(str(tmp_path), "jsonl")
    storage.write(PLAN, b"{}")

    def make(answer=answer, **options):
        return Worker(Job(storage, Selection("image", is_path=True), answer, ("tokens",), **options))

    return make


def test_a_part_is_written_and_reported(make_worker, tmp_path):
    report = make_worker().run(PART)
    assert (report.part, report.count, report.errors, report.failure) == ("part-0000000", 2, 1, None)
    rows = [json.loads(line) for line in (tmp_path / "part-0000000.jsonl").read_text().splitlines()]
    assert [(row["source"], row["text"]) for row in rows] == [("a.jpg", "dog"), ("bad.jpg", None)]


def test_a_batch_of_ray_data_is_made_of_json(make_worker):
    (report,) = make_worker()({"part": [json.dumps(PART.to_json())]})["report"]
    assert json.loads(report)["count"] == 2


def test_a_finished_part_is_not_made_again(make_worker):
    make_worker().run(PART)
    report = make_worker(answer=lambda items: pytest.fail("was made again")).run(PART)
    assert (report.count, report.errors, report.failure) == (2, 1, None)


def test_a_failure_is_reported_and_nothing_is_written(make_worker, tmp_path):
    def fail(items):
        yield {"source": "a.jpg"}
        raise RuntimeError("no model")

    assert make_worker(answer=fail).run(PART).failure == "no model"
    assert [path.name for path in tmp_path.glob("[!.]*")] == [PLAN]


@pytest.mark.parametrize("options", [{"folder": "/nowhere"}, {"required": ("/nowhere",)}])
def test_a_machine_without_the_files_makes_no_part(make_worker, tmp_path, options):
    assert "Every machine must see the same files" in make_worker(**options).run(PART).failure
    assert [path.name for path in tmp_path.iterdir()] == [PLAN]


def test_a_machine_that_does_not_see_the_results_makes_no_part(make_worker, tmp_path):
    (tmp_path / PLAN).unlink()
    assert "Every machine must see the same files" in make_worker().run(PART).failure


def test_a_worker_runs_on_one_thread_in_the_working_directory_of_the_command(make_worker, tmp_path):
    (tmp_path / "sub").mkdir()
    make_worker(folder=str(tmp_path / "sub")).run(PART)
    assert os.environ["TF_NUM_INTRAOP_THREADS"] == "1"
    assert os.getcwd() == str(tmp_path / "sub")


def test_a_part_that_workers_die_of_is_given_up(make_worker):
    class DeathError(BaseException):
        """Stands for a process that ends."""

    def die(items):
        raise DeathError

    for _ in range(4):
        with pytest.raises(DeathError):
            make_worker(answer=die).run(PART)
    assert make_worker(answer=die).run(PART).is_given_up
    make_worker().job.storage.clean()
    assert not make_worker().run(PART).is_given_up
