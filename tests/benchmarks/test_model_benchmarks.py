"""The benchmarks of whole models, on small shapes: they run to the end, and their own checks of parity pass."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
OTHERS = {"training_step": "Keras, RNN cell", "decoding": "Keras, cell in a loop"}
FIGURES = {"per_second", "median_seconds", "spread_seconds", "cpu_seconds_per_run", "first_run_seconds"}


def run(name, *options):
    command = [sys.executable, BENCHMARKS / f"{name}.py", "--quick", "--repeats", "1", *options]
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def contenders(name, *options):
    """The figures of the one contest that the options ask for."""
    done = run(name, "--json", *options)
    assert done.returncode == 0, done.stderr
    (contest,) = json.loads(done.stdout)["contests"].values()
    return contest["contenders"]


@pytest.mark.parametrize(
    ("name", "options"),
    [("training_step", ["--shapes", "summarizer"]), ("decoding", ["--shapes", "recognizer", "--beams", "3"])],
)
def test_this_library_and_plain_keras_are_measured_without_pytorch(name, options):
    figures = contenders(name, "--without-torch", *options)
    assert set(figures) == {"attention_apps", OTHERS[name]}
    for each in figures.values():
        assert set(each) > FIGURES
        assert all(each[figure] > 0 for figure in FIGURES - {"spread_seconds"})
        assert each["peak_memory_bytes"] > each["peak_memory_above_imports_bytes"] > 0
    assert figures[OTHERS[name]]["differences"]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is compared with: pip install torch")
@pytest.mark.parametrize(
    ("name", "options"),
    [("training_step", ["--shapes", "captioner"]), ("decoding", ["--shapes", "summarizer", "--beams", "2"])],
)
def test_pytorch_computes_the_same(name, options):
    figures = contenders(name, *options)
    assert set(figures) == {"attention_apps", "PyTorch", OTHERS[name]}
    assert max(figures["PyTorch"]["differences"].values()) < 1e-2
    assert figures["PyTorch"]["speed_of_pytorch"] == 1


def test_an_unknown_shape_is_named():
    done = run("training_step", "--shapes", "captioner,painter")
    assert done.returncode == 2
    assert "painter is none of captioner, recognizer, summarizer" in done.stderr


def test_a_missing_pytorch_is_said(monkeypatch, capsys):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import report

    monkeypatch.setattr(report.importlib.util, "find_spec", lambda name: None)
    assert not report.has_torch()
    assert "PyTorch is not installed and is left out; to compare with it: pip install torch" in capsys.readouterr().err
