"""What all applications share, shown on a tiny recognizer: options, answers and presets."""

import json
import os
import shutil
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save

from attention_apps.applications import ImageCaptioner, SpeechRecognizer
from attention_apps.applications.pipeline import Pipeline
from attention_apps.applications.recognition import recognizer as recognizer_module
from attention_apps.applications.recognition.recognizer import LISTEN_ATTEND_SPELL
from attention_apps.preprocessing.audio import SAMPLE_RATE
from attention_apps.training import fine_tuning_defaults
from tests.applications.captioners import make_captioner
from tests.applications.recognizers import (
    GREEDY,
    SMALL_DECODER,
    make_config,
    make_recognizer,
    say,
)
from tests.applications.test_preset import rewrite

SPEECH = (say("AB C"), SAMPLE_RATE)
# All special tokens but the end, and the space.
BANNED = (0, 1, 3, 7)


def make_small():
    """A recognizer that is quick to trace, writes letters but no spaces, and tells recordings apart."""
    recognizer = make_recognizer(decoder=SMALL_DECODER, decoding={**GREEDY, "banned_tokens": BANNED})
    for weight in recognizer.model.trainable_weights:
        weight.assign(2.5 * weight)
    return recognizer


@pytest.fixture(scope="module")
def recognizer():
    return make_small()


# Options


def test_options_are_keywords_that_win_over_the_configuration(recognizer):
    assert recognizer.config.decoding.min_length < 6 < recognizer.config.decoding.max_length
    tokens = recognizer.transcribe(SPEECH, min_length=6, max_length=6).tokens
    assert len(tokens) in (5, 6)  # the end token counts


@pytest.mark.parametrize("name", ["beam", "options", "sample_rate", "sentences"])
def test_an_unknown_option_is_refused_at_once_with_the_known_ones(recognizer, tmp_path, name):
    message = rf"`{name}` is not an option\. Options: .*beam_size, .*min_confidence"
    for call in (
        lambda: recognizer.transcribe(SPEECH, **{name: 1}),
        lambda: recognizer.run([SPEECH], **{name: 1}),
        lambda: recognizer.export(tmp_path / "export", **{name: 1}),
    ):
        with pytest.raises(TypeError, match=message):
            call()
    assert not (tmp_path / "export").exists()


def test_a_value_out_of_range_is_refused(recognizer):
    with pytest.raises(ValueError, match="`beam_size` must be at least 1. Received: beam_size=0"):
        recognizer.transcribe(SPEECH, beam_size=0)
    with pytest.raises(ValueError, match=r"`num_best` must be between 1 and 2, `beam_size`"):
        recognizer.transcribe(SPEECH, beam_size=2, num_best=3)


def test_search_and_output_are_told_apart(recognizer):
    search, output = recognizer.split_options({"beam_size": 4, "min_confidence": 0.25})
    assert search == replace(recognizer.config.decoding, beam_size=4)
    assert output == replace(recognizer.config.output, min_confidence=0.25)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"num_best": 8}, {"beam_size": 8, "num_best": 8}),
        ({"num_best": 2}, {"beam_size": 5, "num_best": 2}),
        ({"beam_size": 2}, {"beam_size": 2, "num_best": 2}),
        ({"beam_size": 7}, {"beam_size": 7, "num_best": 3}),
        ({"max_length": 2}, {"max_length": 2, "min_length": 2}),
        ({"max_length": 9}, {"max_length": 9, "min_length": 4}),
    ],
)
def test_a_limit_that_was_not_given_makes_way_for_one_that_was(options, expected):
    decoding = {"beam_size": 5, "num_best": 3, "max_length": 20, "min_length": 4}
    search, _ = SpeechRecognizer(make_config(decoding=decoding)).split_options(options)
    assert {name: getattr(search, name) for name in expected} == expected


def test_as_many_hypotheses_as_asked_for_come_back_from_a_wider_beam(recognizer):
    assert recognizer.config.decoding.beam_size == 1
    alternatives = recognizer.transcribe(SPEECH, num_best=3).alternatives
    assert len(alternatives) == 3
    scores = [score for _, score in alternatives]
    assert scores == sorted(scores, reverse=True)


# Answers


def test_a_single_item_raises_and_a_list_keeps_the_error(recognizer):
    with pytest.raises(FileNotFoundError, match="missing.wav"):
        recognizer.transcribe("missing.wav")
    with pytest.raises(ValueError, match="The audio array must be"):
        recognizer.transcribe(7)
    missing, number, fine = recognizer.transcribe(["missing.wav", 7, SPEECH])
    assert "missing.wav" in missing.error
    assert number.error
    assert (fine.error, missing.source, number.source) == (None, "missing.wav", 7)


def test_an_item_at_which_the_model_fails_harms_no_other(recognizer, monkeypatch):
    """A batch of recordings of which one makes the graph raise, as one does that does not fit into memory."""
    run = Pipeline.run

    def fail(self, source, signature):
        if (source["length"] == 16_001).any():
            raise tf.errors.ResourceExhaustedError(None, None, "out of memory")
        return run(self, source, signature)

    monkeypatch.setattr(Pipeline, "run", fail)
    bad = (np.resize(SPEECH[0], 16_001), SAMPLE_RATE)
    results = recognizer.transcribe([SPEECH, bad, SPEECH])
    assert [result.error is None for result in results] == [True, False, True]
    assert "out of memory" in results[1].error
    assert results[0].text == results[2].text != ""
    with pytest.raises(tf.errors.ResourceExhaustedError):
        recognizer.transcribe(bad)


def test_items_are_read_as_results_are_taken(recognizer):
    taken = []

    def items():
        for number in range(200):
            taken.append(number)
            yield (say("A", letter_seconds=0.05), SAMPLE_RATE)

    results = recognizer.run(items())
    assert taken == []
    next(results)
    assert 0 < len(taken) < 100


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_fails_at_once_instead_of_hanging(recognizer):
    recognizer.transcribe(SPEECH)
    child = os.fork()
    if child == 0:
        try:
            recognizer.transcribe(SPEECH)
        except RuntimeError as error:
            os._exit(0 if "This SpeechRecognizer was created before this process was forked" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_an_application_without_a_model_says_how_to_get_one(tmp_path):
    recognizer = SpeechRecognizer()
    for call in (
        lambda: recognizer.transcribe(SPEECH),
        lambda: recognizer.run([SPEECH]),
        lambda: recognizer.evaluate(tmp_path / "data.csv"),
        lambda: recognizer.save(tmp_path / "mine"),
        lambda: recognizer.export(tmp_path / "mine"),
        lambda: recognizer.with_config(make_config()),
    ):
        with pytest.raises(ValueError, match="This SpeechRecognizer has no model yet: call `fit`, or start with"):
            call()
    assert not (tmp_path / "mine").exists()


# Presets


@pytest.fixture(scope="module")
def saved(recognizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "mine"
    recognizer.save(folder, card="# A card\n")
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A preset that a test may change."""
    return shutil.copytree(saved, tmp_path / "mine")


def change_config(folder, change):
    """Writes another configuration, with its hash."""
    content = json.loads((folder / "config.json").read_bytes())
    change(content)
    rewrite(folder, "config.json", json.dumps(content).encode())


@pytest.fixture
def no_model(monkeypatch):
    """Nothing may be built."""

    def refuse(config, vocabulary):
        raise AssertionError("a model was built")

    monkeypatch.setattr(recognizer_module, "LISTEN_ATTEND_SPELL", replace(LISTEN_ATTEND_SPELL, model=refuse))


@pytest.mark.parametrize(("bits", "tolerance"), [(16, 0.01), (8, 0.1)])
def test_a_preset_comes_back_with_about_the_same_scores(recognizer, tmp_path, bits, tolerance):
    recognizer.save(tmp_path / "mine", bits=bits)
    again = SpeechRecognizer.from_preset(tmp_path / "mine")
    assert again.config == replace(recognizer.config, training=fine_tuning_defaults(recognizer.config.training))
    assert again.start == "mine"
    assert again.vocabulary == recognizer.vocabulary
    before, after = recognizer.transcribe(SPEECH), again.transcribe(SPEECH)
    assert after.score == pytest.approx(before.score, rel=tolerance)
    again.save(tmp_path / "again", bits=bits)
    weights = (path / "weights.safetensors" for path in (tmp_path / "mine", tmp_path / "again"))
    first, second = map(load_file, weights)
    for name, array in first.items():
        np.testing.assert_allclose(second[name], array, rtol=1e-2, atol=1)  # rounding again changes little


def test_the_card_is_the_one_given_or_a_line(recognizer, saved, tmp_path):
    assert (saved / "README.md").read_text() == "# A card\n"
    recognizer.save(tmp_path / "other")
    assert (tmp_path / "other" / "README.md").read_text() == "# other\n\nA model for speech_recognition.\n"


@pytest.mark.parametrize(
    ("section", "sizes"),
    [
        ("decoder", {"units": 8192, "num_layers": 64}),
        ("decoder", {"embedding_dim": 8192}),
        ("decoder", {"kind": "transformer", "embedding_dim": 8192, "hidden_dim": 8192}),
        ("encoder", {"units": 4096, "num_layers": 64}),
    ],
)
@pytest.mark.usefixtures("no_model")
def test_a_model_larger_than_its_file_is_refused_before_it_is_built(folder, section, sizes):
    change_config(folder, lambda content: content["config"][section].update(sizes))
    with pytest.raises(ValueError, match=r"mine: its configuration needs at least [\d,]+ parameters; weights"):
        SpeechRecognizer.from_preset(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["config"]["decoder"].update(units=10**12), "`units` must be between 1 and 8192"),
        (lambda content: content["config"]["decoding"].update(beam_size=10**9), "`beam_size` must be at most 1000"),
        (lambda content: content["config"].update(language="de"), "Unknown key `language`"),
        (lambda content: content.update(config=[1]), "`config` must be a JSON object"),
        (lambda content: content.update(task="cooking"), "`task` must be 'speech_recognition'. .*task='cooking'"),
        (lambda content: content.pop("format"), "`format` must be 2. Presets of version 0.1"),
    ],
)
@pytest.mark.usefixtures("no_model")
def test_a_configuration_that_is_wrong_is_refused_before_a_model_is_built(folder, change, message):
    change_config(folder, change)
    with pytest.raises(ValueError, match=message):
        SpeechRecognizer.from_preset(folder)


@pytest.mark.usefixtures("no_model")
def test_a_lambda_in_the_configuration_is_refused_and_not_run(folder):
    layer = keras.saving.serialize_keras_object(keras.layers.Lambda(lambda value: print("harm") or value))
    change_config(folder, lambda content: content["config"]["decoder"].update(attention=layer))
    with pytest.raises(ValueError, match=r"mine: Unknown key `decoder.attention.\w+`"):
        SpeechRecognizer.from_preset(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"yesterday\n", "mine: This is not a vocabulary"),
        (b"<pad>\n<start>\n<end>\n<unk>\nA\nA\n", "mine: Token 6 of the vocabulary is a duplicate"),
        (b"\xff", "vocabulary.txt: not UTF-8 text"),
    ],
)
def test_a_vocabulary_that_is_none_is_refused(folder, text, message):
    rewrite(folder, "vocabulary.txt", text)
    with pytest.raises(ValueError, match=message):
        SpeechRecognizer.from_preset(folder)


def test_a_preset_without_a_vocabulary_is_refused(folder):
    (folder / "vocabulary.txt").unlink()
    lines = (folder / "SHA256SUMS").read_text().splitlines(keepends=True)
    (folder / "SHA256SUMS").write_text("".join(line for line in lines if "vocabulary" not in line))
    with pytest.raises(ValueError, match="mine: vocabulary.txt is missing"):
        SpeechRecognizer.from_preset(folder)


def test_weights_of_another_model_are_refused(folder, tmp_path):
    other = make_recognizer(decoder={**SMALL_DECODER, "units": 15}, decoding=GREEDY)
    other.save(tmp_path / "other")
    rewrite(folder, "weights.safetensors", (tmp_path / "other" / "weights.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"must be of shape \(.*\). Received: shape="):
        SpeechRecognizer.from_preset(folder)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.usefixtures("no_model")
def test_weights_that_are_no_numbers_are_refused(folder, value):
    weights = load_file(folder / "weights.safetensors")
    weights[min(weights)].flat[-1] = value
    rewrite(folder, "weights.safetensors", save(weights))
    with pytest.raises(ValueError, match=r"mine: the weights '.*' are not all finite numbers"):
        SpeechRecognizer.from_preset(folder)


def test_a_preset_of_another_task_is_refused(folder):
    with pytest.raises(ValueError, match="`task` must be 'image_captioning'. Received: task='speech_recognition'"):
        ImageCaptioner.from_preset(folder)


# Another configuration


def test_another_configuration_keeps_weights_vocabulary_and_files(recognizer, monkeypatch):
    monkeypatch.setattr(recognizer.codec, "language_model", None)  # restored afterwards
    recognizer.codec.fit_language_model(["abc"], order=2)
    config = replace(recognizer.config, encoder=replace(recognizer.config.encoder, dropout=0.4))
    other = recognizer.with_config(config)
    assert type(other) is SpeechRecognizer
    assert other.config == config
    assert other.vocabulary == recognizer.vocabulary
    assert other.codec.files() == recognizer.codec.files() != {}
    assert other.transcribe(SPEECH).score == pytest.approx(recognizer.transcribe(SPEECH).score, abs=1e-5)


@pytest.mark.parametrize("change", [{"units": 13}, {"num_layers": 2}, {"embedding_dim": 7}])
def test_a_configuration_of_another_size_is_refused(recognizer, change):
    config = replace(recognizer.config, decoder=replace(recognizer.config.decoder, **change))
    with pytest.raises(ValueError, match="`config` changes the sizes of the model"):
        recognizer.with_config(config)


@pytest.mark.parametrize("make", [make_captioner, make_recognizer])
def test_every_application_answers_in_the_same_way(make):
    application = make()
    assert callable(getattr(application, {"image_captioning": "caption"}.get(application.task, "transcribe")))
    (failed,) = application.run([b"neither a photo nor a recording"])
    assert failed.error
    assert (failed.text, failed.tokens, failed.alternatives, failed.confidence, failed.unsure) == (
        "",
        [],
        [],
        0.0,
        False,
    )
    assert failed.score == -np.inf
