"""The recipe of speech recognition, on a corpus of a few tones."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from attention_apps import SpeechRecognizer
from attention_apps.applications import RecognizerConfig
from attention_apps.training import read_config
from tests.applications.recognizers import say, wav_bytes
from tests.recipes.loading import load, run_recipe

RECIPE = Path(__file__).parents[2] / "apps" / "speech_recognition"
# For validations while training: a search that is quick to trace.
GREEDY = ("--set", "decoding.beam_size=1", "--set", "decoding.ctc_weight=0.0")


def write_corpus(folder, splits):
    folder.mkdir()
    lines = ["audio\ttranscript\tspeaker\tsplit"]
    for number, (text, split) in enumerate(splits):
        (folder / f"{number}.wav").write_bytes(wav_bytes(say(text, seed=number)))
        lines.append(f"{number}.wav\t{text}\ts{number % 2}\t{split}")
    (folder / "manifest.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.slow
def test_every_step_of_the_recipe_runs(tmp_path, monkeypatch, capsys):
    module, output = load("run", "speech_recognition"), tmp_path / "run"
    monkeypatch.setattr(module, "DEV_STRINGS", 3)
    speech = [("AB C", "train_nodev"), ("CAB", "train_nodev"), ("B", "train_nodev"), ("AC", "train_dev")]
    digits = [("A", "train"), ("B", "train"), ("C", "train"), ("A", "dev"), ("B", "dev")]
    corpora = [write_corpus(tmp_path / name, rows) for name, rows in (("speech", speech), ("digits", digits))]

    def run(step, *arguments):
        module.RECIPE.main("", [step, "--output", str(output), "--quiet", *map(str, arguments)])
        return capsys.readouterr().out

    told = run("prepare", "--data", corpora[0], "--digits", corpora[1], "--strings", "4")
    assert "train.tsv: 3 digits, 3 speech, 4 strings" in told
    times = json.loads((output / "audio" / "strings" / "times.json").read_text())
    assert all(start < end for parts in times.values() for start, end in parts)
    run("train", "--config", RECIPE / "tiny.toml", *GREEDY)
    trained = (output / "model").rename(tmp_path / "trained")
    further = ["--start", trained, "--set", "training.epochs=1", "--set", "ctc.ctc_only_epochs=0", "--restart"]
    run("train", "--config", RECIPE / "tiny.toml", *further)
    *scores, times = [json.loads(line) for line in run("evaluate", "--set", "decoding.beam_size=3").splitlines()]
    assert "boundaries" in times
    assert [entry["data"] for entry in scores] == ["validation", "dev_strings", "dev_digits"]
    assert set(scores[0]) == {"data", "wer", "cer"}
    assert len((output / "dev_digits_written.jsonl").read_text().splitlines()) == 2
    run("export")
    assert (output / "preset" / "SHA256SUMS").is_file()
    config = json.loads((output / "preset" / "config.json").read_text())["config"]
    assert config["ctc"]["ctc_only_epochs"] == 0


@pytest.mark.slow
def test_groups_that_were_not_prepared_are_left_out_of_the_mixture(tmp_path, capsys):
    corpus = write_corpus(tmp_path / "speech", [("AB C", "train_nodev"), ("B", "train_nodev"), ("AC", "train_dev")])
    config, output = tmp_path / "mixture.toml", tmp_path / "run"
    mixture = 'mixture = [{ group = "speech" }, { group = "digits", count = 3 }, { group = "strings" }]\n'
    config.write_text(mixture + (RECIPE / "tiny.toml").read_text().replace("epochs = 2", "epochs = 1"))
    run_recipe("speech_recognition", "prepare", "--output", output, "--data", corpus)
    run_recipe("speech_recognition", "train", "--output", output, "--config", config, "--quiet", *GREEDY)
    told = capsys.readouterr().out
    assert "left out of the mixture" in told
    assert "digits, strings" in told
    config = json.loads((output / "stages" / "training" / "model" / "config.json").read_text())["config"]
    assert [share["group"] for share in config["mixture"]] == ["speech"]


def test_a_manifest_has_one_line_for_a_transcript_of_several(tmp_path):
    path = tmp_path / "train.tsv"
    load("run", "speech_recognition")._write(path, [("my  folder/a.wav", "GO\tON \n\u2028NOW", "ann", "speech")])
    (row,) = SpeechRecognizer().manifest(path).rows()
    assert row["audio"].endswith("my  folder/a.wav")
    assert (row["transcript"], row["group"]) == ("GO ON NOW", "speech")


def test_the_configurations_are_valid():
    config = read_config(RecognizerConfig, RECIPE / "config.toml")
    assert {share.group for share in config.mixture} == {"speech", "strings", "digits", "synthetic"}
    assert read_config(RecognizerConfig, RECIPE / "tiny.toml").training.epochs == 2


@pytest.mark.parametrize("name", ["further.toml", "voices.toml", "fine_tuning.toml"])
def test_what_is_trained_further_is_the_same_model(name):
    first, further = (read_config(RecognizerConfig, RECIPE / file) for file in ("config.toml", name))
    assert replace(further.encoder, dropout=0.1) == first.encoder
    assert replace(further.decoder, dropout=0.1) == first.decoder
    assert further.features == first.features
