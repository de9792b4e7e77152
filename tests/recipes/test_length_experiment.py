"""The plot of scores against lengths, on made-up runs."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.recipes.loading import load

LENGTHS = [5, 50, 6, 40, 7, 30]


@pytest.fixture(scope="module")
def experiment():
    return load("length_experiment", "text_summarization")


@pytest.fixture
def runs(tmp_path):
    """One that is always right, and one that is right where the document is short."""
    for name in ("attention", "none"):
        (tmp_path / name).mkdir()
        entries = [
            {
                "source": "word " * length,
                "references": ["three right words"],
                "written": "three right words" if name == "attention" or length < 10 else "nothing of that",
            }
            for length in LENGTHS
        ]
        lines = "".join(json.dumps(entry) + "\n" for entry in entries)
        (tmp_path / name / "validation_written.jsonl").write_text(lines, encoding="utf-8")
    return tmp_path


def test_the_picture_and_the_table_show_the_score_of_each_length(experiment, runs, capsys):
    picture = runs / "lengths.png"
    arguments = [
        f"--run=with attention={runs / 'attention'}",
        f"--run=without={runs / 'none' / 'validation_written.jsonl'}",
    ]
    experiment.main(["draw", *arguments, "--output", str(picture), "--bins", "2", "--rouge", "1"])
    assert capsys.readouterr().out.splitlines() == [
        "| words | with attention | without |",
        "|---|---|---|",
        "| 6 | 100.0 | 100.0 |",
        "| 40 | 100.0 | 0.0 |",
    ]
    assert min(Image.open(picture).size) > 500


def test_bins_hold_about_equally_many_documents(experiment):
    centers, binned = experiment.bin_by_length(np.array(LENGTHS), {"run": np.arange(6.0)}, 3)
    assert centers.tolist() == [5.5, 18.5, 45.0]
    np.testing.assert_allclose(binned["run"][0], [1.0, 4.5, 2.0])
    np.testing.assert_allclose(binned["run"][1], np.array([1.0, 0.5, 1.0]) / 2**0.5)


def test_there_are_no_more_bins_than_documents(experiment):
    centers, _ = experiment.bin_by_length(np.array([3, 1]), {"run": np.ones(2)}, 5)
    assert centers.tolist() == [1, 3]


def test_runs_on_other_documents_are_refused(experiment, runs):
    entries = experiment.read_run(runs / "attention")
    with pytest.raises(ValueError, match="must be measured on the same documents. Received others: 'other'"):
        experiment.score_runs({"one": entries, "other": entries[:-1]})


def test_a_run_that_was_not_measured_is_named(experiment, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"validation_written.jsonl: `run.py evaluate` writes it"):
        experiment.read_run(tmp_path)
    with pytest.raises(ValueError, match="must have the form NAME=RUN"):
        experiment.parse_runs(["RUN"])


def test_the_corpus_has_syllables_and_the_same_backwards(experiment, tmp_path):
    experiment.write_backwards(tmp_path, {"train": 50, "validation": 3})
    lines = (tmp_path / "train.jsonl").read_text(encoding="utf-8").splitlines()
    pairs = [json.loads(line) for line in lines]
    assert len(pairs) == 50
    assert all(pair["summary"].split() == pair["document"].split()[::-1] for pair in pairs)
    lengths = [len(pair["document"].split()) for pair in pairs]
    assert min(lengths) < 6
    assert max(lengths) > 20
    assert len((tmp_path / "validation.jsonl").read_text(encoding="utf-8").splitlines()) == 3
