"""The recipe of machine translation, on a corpus of a few lines."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
import sacrebleu

from attention_apps.applications import TranslatorConfig
from attention_apps.training import read_config
from tests.applications.translators import make_pairs
from tests.recipes.loading import APPS, load, run_recipe

RECIPE = APPS / "machine_translation"


@pytest.fixture(scope="module")
def dataset():
    return load("dataset", "machine_translation")


@pytest.fixture(scope="module")
def experiment():
    return load("length_experiment", "machine_translation")


def write_corpus(folder, train=32, validation=8):
    folder.mkdir()
    for name, count in (("train", train), ("val", validation)):
        sources, targets = zip(*make_pairs(count))
        (folder / f"{name}.en.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in sources).encode()))
        (folder / f"{name}.de").write_text("".join(f"{line}\n" for line in targets), encoding="utf-8")
    return folder


def rows_of(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_lines_are_paired_and_blank_ones_left_out(dataset, tmp_path, capsys):
    corpus = write_corpus(tmp_path / "corpus")
    (corpus / "val.de").write_text("\n".join(["eins", " ", *"abcdef"]) + "\n", encoding="utf-8")
    dataset.prepare(corpus, tmp_path / "run", "en", "de")
    assert "validation: 7 pairs, 1 without text left out" in capsys.readouterr().out
    rows = rows_of(tmp_path / "run" / "validation.jsonl.gz")
    assert rows[0] == {"source": next(make_pairs())[0], "target": "eins"}
    assert len(rows_of(tmp_path / "run" / "train.jsonl.gz")) == 32
    assert json.loads((tmp_path / "run" / "languages.json").read_text()) == {"source": "en", "target": "de"}


def test_only_line_feeds_end_a_line(dataset, tmp_path):
    for name, text in (("one", "a\u2028b\x85c\n"), ("other", "d\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    pairs = list(dataset.read_pairs(tmp_path / "one", tmp_path / "other"))
    assert pairs == [{"source": "a\u2028b\x85c", "target": "d"}]


def test_a_corpus_that_does_not_fit_is_an_error(dataset, tmp_path):
    corpus = write_corpus(tmp_path / "corpus")
    with pytest.raises(FileNotFoundError, match=r"There is no train.fr and no train.fr.gz in "):
        dataset.prepare(corpus, tmp_path / "run", "en", "fr")
    with pytest.raises(ValueError, match="must be two languages. Received: 'en' twice"):
        dataset.prepare(corpus, tmp_path / "run", "en", "en")
    (corpus / "train.de").write_text("eins\n", encoding="utf-8")
    with pytest.raises(ValueError, match="must have equally many lines"):
        dataset.prepare(corpus, tmp_path / "run", "en", "de")


def test_the_published_bleu_ignores_case_and_forms_of_marks():
    pytest.importorskip("sacremoses")
    moses = load("moses_bleu", "machine_translation")
    assert moses.moses_tokens(["Er sagt: \u201eDer Hund.\u201c  Ein T-Shirt"], "de") == [
        'er sagt : " der hund " . ein t-shirt'
    ]
    texts = ["ein mann , der im garten sitzt .", "zwei hunde spielen im schnee ."]
    references = ["Ein Mann, der im Garten sitzt.", "Zwei Hunde spielen im Sand."]
    expected = sacrebleu.corpus_bleu([text.lower() for text in texts], [[line.lower() for line in references]]).score
    assert moses.moses_bleu(texts, references, "de") == pytest.approx(expected)
    assert moses.moses_bleu(references, references, "de") == pytest.approx(100)


@pytest.mark.parametrize("name", ["config.toml", "recurrent.toml", "tiny.toml"])
def test_configurations_are_valid(name):
    assert read_config(TranslatorConfig, RECIPE / name).decoder.embedding_dim > 0


def make_run(is_good):
    """Translations of 12 sources; the bad ones are wrong where the source is long."""
    for length in range(4, 16):
        text = " ".join(f"w{place}" for place in range(length))
        yield {"source": text, "references": [text], "written": text if is_good or length < 10 else "nothing at all"}


def test_bleu_is_that_of_each_length(experiment):
    runs = {"attention": list(make_run(True)), "none": list(make_run(False))}
    centers, binned = experiment.bleu_by_length(runs, 2)
    assert centers.tolist() == [6.5, 12.5]
    np.testing.assert_allclose(binned["attention"], [[1, 1], [0, 0]], atol=1e-9)
    np.testing.assert_allclose(binned["none"][0], [1, 0], atol=1e-2)


@pytest.mark.slow
def test_every_step_of_the_recipe_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(RECIPE)  # evaluate imports a module from there
    corpus, output = write_corpus(tmp_path / "corpus"), tmp_path / "run"

    def run(step, *arguments):
        run_recipe("machine_translation", step, "--output", output, "--quiet", *arguments)
        return capsys.readouterr().out

    assert "train: 32 pairs" in run("prepare", "--data", corpus)
    run("train", "--config", RECIPE / "tiny.toml", "--set", "training.epochs=1")
    scores, published, *signed = (json.loads(line) for line in run("evaluate").splitlines())
    assert set(scores) == {"data", "sacre_bleu", "chrf"}
    assert published["lower_case"]
    assert [set(one) for one in signed] == [{"sacre_bleu", "signature"}, {"chrf", "signature"}]
    assert len((output / "validation_written.jsonl").read_text().splitlines()) == 8
    foreign = tmp_path / "foreign.txt"
    subprocess.run([sys.executable, RECIPE / "foreign_texts.py", foreign], check=True)
    assert len(set(foreign.read_text(encoding="utf-8").splitlines())) > 50
    calibrated = json.loads(run("calibrate", "--foreign", foreign))
    assert all(0 <= calibrated[name] <= 1 for name in ("right", "calibration_error", "unsure", "foreign_unsure"))
    run("export")
    assert (output / "preset" / "SHA256SUMS").is_file()
