"""Ablations of recipes, on a tiny configuration."""

import contextlib
import io
import json
import subprocess

import pytest

from attention_apps import TextSummarizer, Vocabulary
from attention_apps.applications import RecognizerConfig, SummarizerConfig
from attention_apps.preprocessing.word_forms import UNKNOWN_CLASSES
from attention_apps.training import read_config
from tests.applications.summarizers import make_rows, write_jsonl
from tests.recipes.loading import APPS, load, run_recipe

ablation = load("ablation")
RECIPE = APPS / "text_summarization"


@pytest.mark.parametrize("variant", ablation.read_ablation(RECIPE / "ablation.toml"), ids=lambda one: one["name"])
def test_every_variant_of_the_summarizer_has_a_model(variant):
    config = read_config(SummarizerConfig, RECIPE / variant["config"], variant["set"])
    assert TextSummarizer(config, Vocabulary(UNKNOWN_CLASSES)).model.built


def test_the_experiment_on_lengths_compares_a_model_without_attention_to_one_that_has_it():
    variants = ablation.read_ablation(RECIPE / "lengths.toml")
    without, attends = (read_config(SummarizerConfig, RECIPE / one["config"], one["set"]) for one in variants)
    assert without.decoder.attention.kind == "none"
    assert attends.decoder.attention.kind != "none"
    assert not attends.decoder.copying


def test_variants_of_the_recognizer_add_to_their_base():
    recipe = APPS / "speech_recognition"
    variants = ablation.read_ablation(recipe / "ablation.toml")
    configs = {one["name"]: read_config(RecognizerConfig, recipe / one["config"], one["set"]) for one in variants}
    first, last = configs["attention only"], configs["+ joint decoding"]
    assert (first.ctc.weight, first.augmentation.waveform.speed_probability, first.decoding.ctc_weight) == (0, 0, 0)
    assert (last.ctc.weight, last.augmentation.waveform.speed_probability, last.decoding.ctc_weight) == (0.5, 1, 0.3)
    assert (len(first.augmentation.tempos), len(last.augmentation.tempos)) == (1, 9)
    assert [part.group for part in last.mixture] == ["speech", "strings", "digits", "synthetic"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[variants]]\nname = "a"\nbase = "b"', "must come after 'b'"),
        ('[[variants]]\nname = "a"\ntrain = false', "with `train = false` must have `init_from`"),
        ('steps = 3\n[[variants]]\nname = "a"', "an ablation has"),
        ('[[variants]]\nname = "a"\nsteps = 3', "a variant has"),
        ('[[variants]]\nname = "a"\n[[variants]]\nname = "a"', "must have different names"),
        ('[[variants]]\nname = "a"\ninit_from = "b"', "must come after 'b'"),
        ('[[variants]]\nname = "a"\naveraged = false', "with `averaged` must have `train = false`"),
    ],
)
def test_a_wrong_ablation_is_rejected(tmp_path, text, message):
    (tmp_path / "ablation.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        ablation.read_ablation(tmp_path / "ablation.toml")


def run_in_this_process(command, stdout, **_):
    """A step of a recipe, without the seconds that TensorFlow takes to be imported."""
    assert command[1].endswith("run.py")
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        run_recipe("text_summarization", *command[2:])
    return subprocess.CompletedProcess(command, 0, written.getvalue())


@pytest.mark.slow
def test_variants_are_trained_measured_and_not_trained_again(tmp_path, monkeypatch, capsys):
    data, output, corpus, recipe = (tmp_path / name for name in ("data", "runs", "corpus", "apps/small"))
    corpus.mkdir()
    for split, count in (("train", 16), ("validation", 4)):
        write_jsonl(corpus / f"{split}.jsonl", make_rows("generate", count))
    recipe.mkdir(parents=True)
    for name in ("recipe.py", "calibration.py"):
        (recipe.parent / name).symlink_to(APPS / name)
    for name in ("run.py", "dataset.py"):
        (recipe / name).symlink_to(RECIPE / name)
    (recipe / "config.toml").write_text((RECIPE / "tiny.toml").read_text())
    variants = '[[variants]]\nname = "+ one"\n[[variants]]\nname = "two"\ninit_from = "+ one"\n'
    variants += 'set = ["decoder.dropout=0.1"]\n[[variants]]\nname = "three"\ninit_from = "two"\ntrain = false\n'
    variants += 'set = ["decoding.beam_size=2"]\n[[variants]]\nname = "last"\ninit_from = "+ one"\ntrain = false\n'
    (recipe / "ablation.toml").write_text(
        f'set = ["training.epochs=1", "training.ema=0.9"]\n{variants}averaged = false\n'
    )
    run_recipe("text_summarization", "prepare", "--data", corpus, "--output", data)
    capsys.readouterr()
    monkeypatch.setattr(ablation.subprocess, "run", run_in_this_process)
    command = [recipe / "ablation.toml", "--data", data, "--output", output]
    ablation.main([str(part) for part in command])
    table = capsys.readouterr().out
    assert table.splitlines()[0] == "| variant | rouge_1 | rouge_2 | rouge_l | CPU minutes |"
    assert [line.split(" | ")[0] for line in table.splitlines()[2:]] == ["| + one", "| two", "| three", "| last"]
    weights = [(output / name / "model" / "weights.safetensors").read_bytes() for name in ("one", "three", "last")]
    assert weights[2] not in weights[:2]
    kept = {"scores": {"rouge_1": 0.5, "rouge_2": 0.25, "rouge_l": 1.0}, "minutes": 7.0}
    (output / "two" / "result.json").write_text(json.dumps(kept))
    ablation.main([str(part) for part in [*command, "--only", "two"]])
    again = capsys.readouterr().out
    assert again.splitlines()[2:] == ["| two | 50.0 | 25.0 | 100.0 | 7 |"]
