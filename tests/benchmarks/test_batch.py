"""Rates of `attention-apps batch` are those after loading, and large jobs are projected from them."""

import importlib
import json
import os
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def batch(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("batch")


def test_the_first_part_of_each_worker_is_not_timed(batch):
    parts = [(30.0, 16), (32.0, 16), (34.0, 16), (36.0, 16), (40.0, 8)]
    assert batch.steady_rate(parts, workers=1) == pytest.approx(56 / 10)
    assert batch.steady_rate(parts, workers=2) == pytest.approx(40 / 8)


def test_parts_are_read_in_the_order_in_which_they_were_finished(batch, tmp_path):
    for name, finished, seconds in (("part-0000000", 50, [2.0, 3.0]), ("part-0000001", 40, [4.0])):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"seconds": one}) + "\n" for one in seconds))
        os.utime(path, (finished, finished))
    assert batch.read_parts(tmp_path) == [(40.0, 4.0), (50.0, 5.0)]


def test_a_failed_input_spoils_the_measurement(batch, tmp_path):
    (tmp_path / "part-0000000.jsonl").write_text(json.dumps({"text": None, "error": "It is bad"}))
    with pytest.raises(SystemExit, match="An input failed: It is bad"):
        batch.read_parts(tmp_path)


def test_large_jobs_are_projected_from_the_most_workers(batch):
    ten, hundred = batch.project({"caption": {1: 12.0, 2: 20.0}}, cpus=4, price=0.5)
    assert ten["machine_hours"] == pytest.approx(1e6 / 40 / 3600)
    assert (ten["machines"], ten["hours"]) == (10, pytest.approx(1e6 / 400 / 3600))
    assert hundred["hours"] == pytest.approx(ten["hours"] / 10)
    assert hundred["price"] == ten["price"] == pytest.approx(0.5 * ten["machine_hours"])
    assert "price" not in batch.project({"caption": {1: 12.0}}, cpus=4, price=None)[0]


def test_tables_have_all_rates_and_jobs(batch, capsys):
    batch.print_tables({"caption": {1: 12.0, 2: 20.0}, "summarize": {1: 30.0, 2: 50.0}}, cpus=4, price=0.5)
    printed = capsys.readouterr().out
    assert "| photos | 12 | 20 |" in printed
    assert "| a million photos | 10 | 0.694 | 6.94 | 3.47 |" in printed
    assert "| ten million paragraphs | 100 | 0.278 | 27.8 | 13.89 |" in printed
