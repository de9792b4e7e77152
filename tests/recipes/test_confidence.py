"""The command that chooses the threshold of a confidence."""

import json
import sys

import numpy as np

from tests.applications.recognizers import make_recognizer, write_corpus
from tests.recipes.loading import load

confidence = load("confidence")


def test_no_more_good_answers_than_allowed_are_unsure():
    good = np.linspace(0.405, 0.995, 60)
    threshold = confidence.choose_threshold(good, 0.05)
    assert threshold == 0.43
    assert np.mean(good < threshold) <= 0.05
    assert np.mean(good < threshold + 0.01) > 0.04


def test_the_command_prints_shares_for_good_and_foreign_data(tmp_path, monkeypatch, capsys):
    make_recognizer().save(tmp_path / "preset")
    good, foreign = write_corpus(tmp_path / "good", 4), write_corpus(tmp_path / "foreign", 3, seed=1)
    arguments = ["confidence.py", str(tmp_path / "preset"), "--good", str(good), "--foreign", str(foreign)]
    monkeypatch.setattr(sys, "argv", arguments)
    confidence.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("items") for line in lines] == [4, 4, None, 3, 3]
    assert lines[0]["threshold"] == "0 (preset)"
    assert lines[1]["empty_or_unsure"] - lines[1]["empty"] <= 0.02
