"""Stages of a cold start are told apart; a new process answers."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.applications.summarizers import TEXT, WORDS, make_compressor

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def cold_start(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("cold_start")


def test_stages_lie_between_the_times(cold_start):
    stages = cold_start.split_into_stages([1.0, 4.0, 6.0, 6.5, 6.75])
    assert stages["import TensorFlow and Keras"] == 3
    assert stages["above the imports"] == stages["import and load"] + stages["first answer"] == 2.5
    assert stages["second answer"] == 0.25


def test_presets_take_turns_and_medians_count(cold_start, monkeypatch):
    asked = []

    def answer(preset, inputs):
        asked.append(preset)
        return dict.fromkeys(cold_start.COLUMNS, float(len(asked) ** 2))

    monkeypatch.setattr(cold_start, "answer_in_new_process", answer)
    figures = cold_start.measure(["a", "b"], "", repeats=3)
    assert asked == ["a", "b"] * 3
    assert figures["a"]["first answer"] == 9  # of 1, 9 and 25
    assert figures["b"]["first answer"] == 16  # of 4, 16 and 36


def test_the_table_has_a_row_for_each_preset(cold_start, capsys):
    cold_start.print_table({"a_preset": dict.fromkeys(cold_start.COLUMNS, 1.25)})
    heading, row = capsys.readouterr().out.splitlines()
    assert "above the imports" in heading
    assert row.split() == ["a_preset", *["1.25"] * len(cold_start.COLUMNS)]


@pytest.mark.slow
def test_a_new_process_answers(tmp_path):
    make_compressor(words=WORDS).save(tmp_path / "preset")
    (tmp_path / "a.txt").write_text(TEXT)
    options = ["--texts", "a.txt", "--repeats", "1", "--json"]
    command = [sys.executable, BENCHMARKS / "cold_start.py", "preset", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["preset"]
    assert figures["above the imports"] > figures["second answer"] > 0
