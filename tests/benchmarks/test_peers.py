"""The benchmark of the peers, without any peer: fake contenders, environments that cannot be made, the table."""

import argparse
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FIGURES = {"per_second": 4000.0, "cpu_seconds_per_run": 0.04, "median_seconds": 0.05}


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("peers")


@pytest.fixture
def contenders(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("peer_contenders")


def test_the_table_divides_their_cpu_time_by_ours(peers):
    theirs = {"per_second": 1600.0, "cpu_seconds_per_run": 0.1, "median_seconds": 0.2}
    lines = peers.make_table({"Transformer": {"attention_apps": FIGURES, "Hugging Face": theirs}}).splitlines()
    assert lines[2] == "| Transformer | attention_apps |  | 40 | 5,000 | 1.00 | 1.00 |"
    assert lines[3] == "|  | Hugging Face | copied, same tokens | 100 | 3,200 | 2.50 | 4.00 |"


def test_a_peer_that_does_not_run_has_its_reason_in_the_table(peers):
    figures = {"attention_apps": FIGURES, "JoeyNMT": {"error": "not installed: a | b"}}
    line = peers.make_table({"recurrent": figures}).splitlines()[-1]
    assert "| not installed: a / b |" in line
    assert line.count("|") == len(peers.COLUMNS) + 1


def test_an_environment_that_cannot_be_made_is_reported_once(peers, monkeypatch, tmp_path):
    asked = []

    def install(folder, packages):
        asked.append(folder.name)
        raise peers.InstallationError("No matching distribution")

    monkeypatch.setattr(peers, "install", install)
    monkeypatch.setattr(peers, "hold_contest", lambda case, contest, *_: dict.fromkeys(contest.entries, FIGURES))
    options = argparse.Namespace(only=["recurrent"], environments=tmp_path, quick=True, batch=2, repeats=1)
    report = peers.hold_contests(options)
    assert sorted(asked) == ["joeynmt", "speechbrain"]
    assert len(report["contests"]) == 4
    for figures in report["contests"].values():
        assert list(figures) == ["attention_apps", "SpeechBrain", "JoeyNMT"]
        assert figures["JoeyNMT"] == {"error": "not installed: No matching distribution"}


def test_an_environment_is_used_again(peers, tmp_path):
    record = {"packages": ["torch", "joeynmt"], "versions": {"torch": "2"}}
    (tmp_path / "installed.json").write_text(json.dumps(record))
    assert peers.install(tmp_path, ("torch", "joeynmt")) == (tmp_path / "bin" / "python", {"torch": "2"})


def test_peers_get_our_arguments_in_their_environment(peers):
    contest = peers.make_contest("our_contenders.OurTransformer", peers.TRANSFORMER_PEERS["translator"], beam_size=4)
    installed = peers.add_peers(contest, {**peers.TRANSFORMERS, **peers.KERAS_HUB}, {None: sys.executable})
    assert list(installed.entries) == ["attention_apps", "KerasHub"]
    assert installed.entries["KerasHub"].arguments is contest.entries["attention_apps"].arguments
    assert installed.entries["KerasHub"].may_fail
    assert contest.units_per_run == 8 * 20


def test_a_contender_that_writes_fewer_tokens_is_stopped(contenders):
    contenders.check_lengths(np.zeros((3, 20)))
    with pytest.raises(ValueError, match=r"must have 20 tokens. Received: lengths=\[19, 20\]"):
        contenders.check_lengths([[0] * 20, [0] * 19])


def test_different_tokens_are_counted_by_sequence(contenders):
    reference = {"token_ids": np.array([[1, 2], [3, 4]])}
    assert contenders.compare_tokens(reference, np.array([[1, 2], [4, 3]])) == {"token_ids": 0.5}


def test_copied_positions_are_those_of_our_layer(contenders):
    from attention_apps.layers import SinusoidalPositionEncoding

    ours = SinusoidalPositionEncoding()(np.zeros((1, 7, 6), "float32"))[0]
    np.testing.assert_allclose(contenders.sinusoids(7, 6), ours, atol=1e-6)


def test_an_optional_contender_that_does_not_run_leaves_the_others(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    contest = importlib.import_module("contest")

    class FakeWorker:
        def __init__(self, contender, python):
            self.contender = contender

        def wait(self):
            if self.contender == "missing":
                raise contest.ContenderError("Traceback\nModuleNotFoundError: no missing")

        def make(self, *arguments):
            return {"results": [None]}

        def call(self, method, *arguments):
            return {}

        def time_run(self):
            return 0.2, 0.1

        def close(self):
            pass

    monkeypatch.setattr(contest, "Worker", FakeWorker)
    entries = {"attention_apps": contest.Entry("ours", ()), "peer": contest.Entry("missing", (), may_fail=True)}
    figures = contest.hold_contest("case", contest.Contest(entries, 10, {}), repeats=2, show=lambda line: None)
    assert figures["peer"] == {"error": "ModuleNotFoundError: no missing"}
    assert figures["attention_apps"]["per_second"] == 50
    entries["peer"] = contest.Entry("missing", ())
    with pytest.raises(contest.ContenderError, match="no missing"):
        contest.hold_contest("case", contest.Contest(entries, 10, {}), repeats=2, show=lambda line: None)
