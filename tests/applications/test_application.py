"""What all applications share: how they are loaded from folders that mean harm, what they say of their data."""

import dataclasses
import json
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save

from attention_apps.applications.image_captioner import ImageCaptioner
from attention_apps.applications.speech_recognizer import SpeechRecognizer
from attention_apps.applications.summarizer_config import SummarizerConfig
from attention_apps.applications.text_summarizer import TextSummarizer
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.preprocessing.word_forms import UNKNOWN_KINDS
from attention_apps.training.config import read_config
from attention_apps.training.manifest import Row
from tests.applications import captioners, recognizers
from tests.applications.summarizers import CONFIGS, TRANSFORMER, make_rows, make_summarizer, write_jsonl
from tests.applications.test_preset_folder import rewrite

WORDS = Vocabulary([*UNKNOWN_KINDS, "yesterday", "in", "the", "old", "town"])


@pytest.fixture
def folder(tmp_path):
    TextSummarizer(read_config(SummarizerConfig, CONFIGS["generate"]), WORDS).save(tmp_path / "mine")
    return tmp_path / "mine"


def change_config(folder, change):
    """Writes another configuration, with its hash."""
    content = json.loads((folder / "config.json").read_bytes())
    change(content)
    rewrite(folder, "config.json", json.dumps(content).encode())


def refuse_to_build(self):
    raise AssertionError("a model was made")


@pytest.mark.parametrize(
    ("section", "sizes"),
    [
        ("decoder", {"units": 8192, "num_layers": 64}),
        ("decoder", {"embedding_dim": 8192}),
        ("decoder", {"kind": "transformer", "embedding_dim": 8192, "hidden_dim": 8192}),
        ("encoder", {"units": 8192, "num_layers": 64}),
        ("encoder", {"embedding_dim": 8192}),
    ],
)
def test_a_model_larger_than_its_file_is_refused_before_it_is_made(folder, section, sizes, monkeypatch):
    change_config(folder, lambda content: content["config"][section].update(sizes))
    monkeypatch.setattr(TextSummarizer, "_make_model", refuse_to_build)
    with pytest.raises(ValueError, match=r"mine: the model of its configuration has [\d,]+ weights and more; its file"):
        TextSummarizer.load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["config"]["decoder"].update(units=10**12), "`units` must be between 1 and 8192"),
        (lambda content: content["config"]["decoding"].update(beam_size=10**9), "`beam_size` must be at most 1000"),
        (lambda content: content["config"].update(vocabulary_size=-1), "`vocabulary_size` must be between"),
        (lambda content: content.update(config="/etc/hostname"), "`config` must be a JSON object. Received: str"),
        (lambda content: content.update(config=[1]), "`config` must be a JSON object. Received: list"),
        (lambda content: content.update(task="speech_recognition"), "`task` must be 'text_summarization'"),
    ],
)
def test_a_configuration_out_of_bounds_is_refused_before_a_model_is_made(folder, change, message, monkeypatch):
    change_config(folder, change)
    monkeypatch.setattr(TextSummarizer, "_make_model", refuse_to_build)
    with pytest.raises(ValueError, match=message):
        TextSummarizer.load(folder)


def test_a_lambda_in_the_configuration_is_refused_and_not_run(folder, monkeypatch):
    layer = keras.saving.serialize_keras_object(keras.layers.Lambda(lambda value: print("harm") or value))
    monkeypatch.setattr(TextSummarizer, "_make_model", refuse_to_build)
    change_config(folder, lambda content: content["config"]["decoder"].update(attention=layer))
    with pytest.raises(ValueError, match=r"mine: Unknown key `decoder.attention.\w+`"):
        TextSummarizer.load(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"yesterday\n", "mine: This is no vocabulary"),
        (b"<pad>\n<start>\n<end>\n<unk>\nin\nin\n", "mine: Token 6 of the vocabulary is there already"),
        (b"<pad>\n<start>\n<end>\n<unk>\nin\n", "mine: The first words of the vocabulary must be <number>, "),
        (b"\xff", "vocabulary.txt: not UTF-8 text"),
    ],
)
def test_a_vocabulary_that_is_none_is_refused(folder, text, message):
    rewrite(folder, "vocabulary.txt", text)
    with pytest.raises(ValueError, match=message):
        TextSummarizer.load(folder)


def test_weights_of_another_model_are_refused(folder, tmp_path):
    config = {**CONFIGS["generate"], "decoder": {**CONFIGS["generate"]["decoder"], "units": 15}}
    TextSummarizer(read_config(SummarizerConfig, config), WORDS).save(tmp_path / "other")
    rewrite(folder, "weights.safetensors", (tmp_path / "other" / "weights.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"must be of shape \(.*\). Received: shape="):
        TextSummarizer.load(folder)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused(folder, value, monkeypatch):
    weights = load_file(folder / "weights.safetensors")
    weights[min(weights)].flat[-1] = value
    rewrite(folder, "weights.safetensors", save(weights))
    monkeypatch.setattr(TextSummarizer, "_make_model", refuse_to_build)
    with pytest.raises(ValueError, match=r"mine: the weights '.*' are not all finite numbers"):
        TextSummarizer.load(folder)


def applications():
    captioner = captioners.make_config(tied_embeddings=True)
    yield "captioner", ImageCaptioner, captioner
    for cell in ("lstm", "gru"):
        deep = dataclasses.replace(captioner, decoder=dataclasses.replace(captioner.decoder, cell=cell, num_layers=2))
        yield f"captioner, {cell}", ImageCaptioner, deep
    yield "recognizer", SpeechRecognizer, recognizers.make_config()
    pyramid = {**recognizers.CONFIG["encoder"], "front_end": "pyramidal", "filters": 64}
    yield "recognizer, pyramidal", SpeechRecognizer, recognizers.make_config(encoder=pyramid)
    for name, config in {**CONFIGS, "transformer": TRANSFORMER}.items():
        yield f"summarizer, {name}", TextSummarizer, read_config(SummarizerConfig, config)


@pytest.mark.parametrize(
    ("cls", "config"), [pytest.param(cls, config, id=name) for name, cls, config in applications()]
)
def test_no_model_has_fewer_weights_than_is_said_before_it_is_made(cls, config):
    model = cls(config, WORDS).model
    assert 0 < config.fewest_weights(len(WORDS)) <= model.count_params()


def test_training_begins_with_the_lengths_and_the_share_of_unknown_words(tmp_path, capsys):
    data = write_jsonl(tmp_path / "train.jsonl", make_rows("generate", 16))
    row = {"document": "Alice likes Qwert in the town", "summary": "Alice likes Qwert"}
    validation = write_jsonl(tmp_path / "validation.jsonl", [row])
    summarizer = make_summarizer(CONFIGS["generate"], ["training.epochs=1", "training.max_steps=1"])
    summarizer.fit(data, validation)
    told = capsys.readouterr().err
    assert "training: length of `document`" in told
    assert "document 0.00%, summary 0.00%" in told
    assert "document 16.67%, summary 33.33%" in told


@pytest.mark.parametrize(
    ("make", "column", "text"),
    [(captioners.make_captioner, "caption", "A dog zzz."), (recognizers.make_recognizer, "transcript", "abü")],
)
def test_the_share_of_unknown_tokens_is_that_of_the_vocabulary(make, column, text):
    assert make()._unknown_rates([Row({column: text}, Path("data.csv"), 2)]) == {column: pytest.approx(1 / 3)}
