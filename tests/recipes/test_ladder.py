"""The ladder of a recipe, on a tiny configuration."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from attention_apps.applications.recognizer_config import RecognizerConfig
from attention_apps.applications.summarizer_config import SummarizerConfig
from attention_apps.applications.text_summarizer import TextSummarizer
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.preprocessing.word_forms import UNKNOWN_KINDS
from attention_apps.training.config import read_config
from tests.applications.summarizers import make_rows, write_jsonl

APPS = Path(__file__).parents[2] / "apps"
RECIPE = APPS / "text_summarization"


def load_ladder():
    spec = importlib.util.spec_from_file_location("ladder", APPS / "ladder.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ladder = load_ladder()


@pytest.mark.parametrize("rung", ladder.read_ladder(RECIPE / "ladder.toml"), ids=lambda rung: rung["name"])
def test_every_rung_of_the_summarizer_has_a_model_and_a_row_in_the_card(rung):
    config = read_config(SummarizerConfig, RECIPE / rung["config"], rung["set"])
    assert TextSummarizer(config, Vocabulary(UNKNOWN_KINDS)).model.built
    assert f"| {rung['name']} |" in (RECIPE / "README.md").read_text(encoding="utf-8")


def test_the_experiment_on_lengths_compares_a_model_without_attention_to_one_that_has_it():
    rungs = ladder.read_ladder(RECIPE / "lengths.toml")
    without, attends = (read_config(SummarizerConfig, RECIPE / rung["config"], rung["set"]) for rung in rungs)
    assert without.decoder.attention.kind == "none"
    assert attends.decoder.attention.kind != "none"
    assert not attends.decoder.copying


def test_every_rung_of_the_recognizer_has_a_config_and_a_row_in_the_card():
    recipe = APPS / "speech_recognition"
    rungs = ladder.read_ladder(recipe / "ladder.toml")
    configs = {rung["name"]: read_config(RecognizerConfig, recipe / rung["config"], rung["set"]) for rung in rungs}
    card = (recipe / "README.md").read_text(encoding="utf-8")
    assert all(f"| {name} |" in card for name in configs)
    first, last = configs["attention only"], configs["+ joint decoding"]
    assert (first.ctc.weight, first.augmentation.waveform.speed_probability, first.decoding.ctc_weight) == (0, 0, 0)
    assert (last.ctc.weight, last.augmentation.waveform.speed_probability, last.decoding.ctc_weight) == (0.5, 1, 0.3)
    assert (len(first.augmentation.tempos), len(last.augmentation.tempos)) == (1, 9)
    assert [part.group for part in last.mixture] == ["speech", "strings", "digits", "synthetic"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[rungs]]\nname = "a"\nlike = "b"', "must come after 'b'"),
        ('[[rungs]]\nname = "a"\ntrains = false', "must say `after`"),
        ('steps = 3\n[[rungs]]\nname = "a"', "a ladder has"),
        ('[[rungs]]\nname = "a"\nsteps = 3', "a rung has"),
        ('[[rungs]]\nname = "a"\n[[rungs]]\nname = "a"', "a name of its own"),
        ('[[rungs]]\nname = "a"\nafter = "b"', "must come after 'b'"),
        ('[[rungs]]\nname = "a"\naveraged = false', "must have `trains = false`"),
    ],
)
def test_a_ladder_that_makes_no_sense_is_refused(tmp_path, text, message):
    (tmp_path / "ladder.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        ladder.read_ladder(tmp_path / "ladder.toml")


@pytest.mark.slow
def test_rungs_are_trained_measured_and_not_trained_again(tmp_path):
    data, output, recipe = tmp_path / "data", tmp_path / "runs", tmp_path / "ladder.toml"
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for split, count in (("train", 16), ("validation", 4)):
        write_jsonl(corpus / f"{split}.jsonl", make_rows("generate", count))
    run = [sys.executable, RECIPE / "run.py"]
    subprocess.run([*run, "prepare", "--data", corpus, "--output", data], check=True)
    for path in RECIPE.glob("*.py"):
        (tmp_path / path.name).symlink_to(path)
    tiny = (RECIPE / "tiny.toml").read_text()
    (tmp_path / "config.toml").write_text(tiny)
    rungs = '[[rungs]]\nname = "+ one"\n[[rungs]]\nname = "two"\nafter = "+ one"\nset = ["decoder.dropout=0.1"]\n'
    rungs += '[[rungs]]\nname = "three"\nafter = "two"\ntrains = false\nset = ["decoding.beam_size=2"]\n'
    rungs += '[[rungs]]\nname = "last"\nafter = "+ one"\ntrains = false\naveraged = false\n'
    recipe.write_text(f'set = ["training.epochs=1", "training.ema=0.9"]\n{rungs}')
    command = [sys.executable, APPS / "ladder.py", recipe, "--data", data, "--output", output]
    table = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert table.splitlines()[0] == "| rung | rouge_1 | rouge_2 | rouge_l | CPU minutes |"
    assert [line.split(" | ")[0] for line in table.splitlines()[2:]] == ["| + one", "| two", "| three", "| last"]
    weights = [(output / name / "model" / "weights.safetensors").read_bytes() for name in ("one", "three", "last")]
    assert weights[2] not in weights[:2]
    kept = {"scores": {"rouge_1": 0.5, "rouge_2": 0.25, "rouge_l": 1.0}, "minutes": 7.0}
    (output / "two" / "result.json").write_text(json.dumps(kept))
    again = subprocess.run([*command, "--only", "two"], check=True, capture_output=True, text=True).stdout
    assert again.splitlines()[2:] == ["| two | 50.0 | 25.0 | 100.0 | 7 |"]
