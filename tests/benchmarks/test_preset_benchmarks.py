"""The benchmarks of presets run to the end on a tiny recognizer, whose export says what the application says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.applications.recognizers import make_recognizer, say, wav_bytes

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recognizer")
    make_recognizer().save(folder / "preset")
    for name, text in (("a", "AB C"), ("b", "CAB")):
        (folder / f"{name}.wav").write_bytes(wav_bytes(say(text)))
    return folder


def figures_of(folder, name, *options):
    command = [sys.executable, BENCHMARKS / f"{name}.py", "preset", "a.wav", "b.wav", "--json", "--repeats", "2"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_answers_are_counted_and_so_are_the_seconds_of_speech(folder):
    figures = figures_of(folder, "throughput", "--count", "5", "--batch-size", "2", "--threads", "1")
    assert figures["inputs"] == 5
    assert figures["inputs a second"] == pytest.approx(1 / figures["seconds of an input"])
    assert 0 < figures["inputs a second"] < figures["times as fast as speech"]  # each lasts longer than a second


@pytest.mark.slow
def test_an_export_is_timed_next_to_the_application(folder):
    figures = figures_of(folder, "serving", "--calls", "12", "--seconds", "1")
    assert figures["first answer seconds"] > 0
    assert figures["export / live"] == pytest.approx(figures["export milliseconds"] / figures["live milliseconds"])
    assert figures["calls"] == 12
