"""Parts by a worker, and on a cluster of two nodes on this machine, one of which is killed in the middle."""

import argparse
import json
import os
import sys
import threading
import time
import types

import pytest

from attention_apps.batch import cluster
from attention_apps.batch.cluster import Job, Worker
from attention_apps.batch.inputs import Selection
from attention_apps.batch.results import PLAN, Part, Span, Storage, open_plan
from attention_apps.cli import main
from tests.batch.doomed_answers import DoomedAnswer
from tests.tiny_applications import TEXT, make_application

PART = Part("part-0000000", (Span("a.jpg"), Span("bad.jpg")))
NUM_TEXTS, PART_SIZE = 14, 2


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


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A preset and texts, one of them no text."""
    folder = tmp_path_factory.mktemp("cluster")
    make_application("compressor").save(folder / "preset")
    (folder / "texts").mkdir()
    for number in range(NUM_TEXTS):
        (folder / "texts" / f"{number:02d}.txt").write_text(TEXT.replace("Bob", f"Bob{number}"))
    (folder / "texts" / "07.txt").write_bytes(b"%PDF-1.7")
    return folder


@pytest.fixture
def two_nodes(monkeypatch):
    """A cluster of two nodes with one CPU each; the driver is on the first."""
    ray = pytest.importorskip("ray", reason="a cluster needs the extra `ray`")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    small = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=small)
    try:
        nodes.add_node(**small)
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()


def expected_rows(place, capsys):
    """What the command for single inputs prints."""
    capsys.readouterr()
    assert main(["compress", str(place / "texts"), "--preset", str(place / "preset"), "--json", "--quiet"]) == 1
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def make_job(place, output, doomed):
    answer = DoomedAnswer("compress", str(place / "preset"), {})
    answer.doomed, answer.log = doomed.node_id, str(place / "log")
    (place / "log").mkdir()
    inputs = [f"file://{place}/texts"]
    options = argparse.Namespace(inputs=inputs, lines=False, column=[], format="jsonl", part_size=PART_SIZE)
    selection, storage = answer.selection(options), Storage(str(output), "jsonl")
    plan = open_plan(storage, answer.settings(options, selection), lambda: answer.parts(inputs, selection, PART_SIZE))
    return Job(storage, selection, answer, ("tokens", "copied", "passages", "read_whole")), plan


@pytest.mark.slow
def test_a_node_killed_in_the_middle_loses_nothing_and_doubles_nothing(place, two_nodes, tmp_path, capsys):
    doomed = next(iter(two_nodes.worker_nodes))
    job, plan = make_job(place, tmp_path, doomed)
    begun = job.answer.begun

    def kill():
        while len(begun(doomed.node_id)) < 2:
            time.sleep(0.05)
        two_nodes.remove_node(doomed, allow_graceful=False)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    reports = list(cluster.run_parts(job, plan.parts, None, two_nodes.address))
    killer.join(60)
    (lost,) = begun(doomed.node_id) & begun(two_nodes.head_node.node_id)
    assert len(begun(doomed.node_id)) == 2  # one part before it died, and the lost one
    assert sorted(report.part for report in reports) == [part.name for part in plan.parts]
    assert sum(report.errors for report in reports) == 1
    names = sorted(path.name for path in tmp_path.glob("part-*"))
    assert names == [f"{part.name}.jsonl" for part in plan.parts]
    rows = [json.loads(line) for name in names for line in (tmp_path / name).read_text().splitlines()]
    assert rows == [approximately(row) for row in expected_rows(place, capsys)]
    assert lost in [row["source"].rpartition("/")[2] for row in rows]


def approximately(row):
    """Scores and confidences depend on what else is in a batch, in their last digits."""
    close = {name: pytest.approx(row[name], abs=1e-4) for name in ("score", "confidence") if row.get(name) is not None}
    alternatives = [{**one, "score": pytest.approx(one["score"], abs=1e-4)} for one in row["alternatives"]]
    return {**row, **close, "alternatives": alternatives}


def test_without_ray_the_command_to_install_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match="pip install 'attention_apps\\[ray\\]'"):
        cluster.import_ray()


def test_ray_sends_no_statistics(monkeypatch):
    pytest.importorskip("ray", reason="a cluster needs the extra `ray`")
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    cluster.import_ray()
    from ray._common.usage import usage_lib

    assert not usage_lib.usage_stats_enabled()


class FakeRay(types.SimpleNamespace):
    """Ray whose workers die: each round yields the reports that it is told to."""

    def cluster_resources(self):
        return {"CPU": 3.0}


@pytest.fixture
def run_rounds(monkeypatch):
    from contextlib import nullcontext

    def run(*rounds):
        sizes = []

        def run_round(ray, job, parts, workers):
            sizes.append(len(parts))
            yield from rounds[len(sizes) - 1]

        monkeypatch.setattr(cluster, "_connected", lambda workers, address: nullcontext(FakeRay()))
        monkeypatch.setattr(cluster, "_run_round", run_round)
        parts = [cluster.Part(f"part-{number}", ()) for number in range(3)]
        return [report.part for report in cluster.run_parts(None, parts, None, None)], sizes

    return run


def test_what_a_round_leaves_is_run_in_another(run_rounds):
    reports = [cluster.PartReport(f"part-{number}") for number in range(3)]
    assert run_rounds(reports[1:2], [reports[1], reports[2]], reports[:1]) == (
        ["part-1", "part-2", "part-0"],
        [3, 2, 1],
    )


def test_a_round_without_any_part_ends_the_run(run_rounds):
    with pytest.raises(ChildProcessError, match="2 parts could not be made, .* again and again: part-0, part-2."):
        run_rounds([cluster.PartReport("part-1")], [])


def test_a_part_that_workers_die_of_does_not_stop_the_others(run_rounds):
    with pytest.raises(ChildProcessError, match="1 parts could not be made, .*: part-1. ") as raised:
        run_rounds(
            [cluster.PartReport("part-1", is_given_up=True)],
            [cluster.PartReport("part-0"), cluster.PartReport("part-2")],
        )
    assert "part-2" not in str(raised.value)


def test_what_no_worker_can_do_ends_the_run(run_rounds):
    with pytest.raises(ValueError, match="host_7: no space"):
        run_rounds([cluster.PartReport("part-1", machine="host_7", failure="no space")])


class Rows:
    """A data set of Ray whose workers fail after some reports."""

    exceptions = types.SimpleNamespace(RayError=ArithmeticError)

    def __init__(self, *reports):
        self.data, self.reports = self, reports

    def from_items(self, items, override_num_blocks):
        return self

    def map_batches(self, worker, **options):
        return self

    def ActorPoolStrategy(self, **options):  # noqa: N802 (the name is Ray's)
        return None

    def iter_rows(self):
        yield from ({"report": json.dumps({"part": name})} for name in self.reports)
        raise ArithmeticError("The actor died.\nModuleNotFoundError: No module named 'attention_apps'\n")


def test_workers_that_cannot_begin_say_why():
    with pytest.raises(ChildProcessError, match="No worker could begin: ModuleNotFoundError: No module named"):
        list(cluster._run_round(Rows(), None, [cluster.Part("part-0", ())], 1))


def test_a_machine_that_dies_later_ends_the_round_only():
    parts = [cluster.Part("part-0", ()), cluster.Part("part-1", ())]
    assert [report.part for report in cluster._run_round(Rows("part-1"), None, parts, 1)] == ["part-1"]
