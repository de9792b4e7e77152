"""How all applications learn from data, shown on a tiny recognizer."""

import re
from dataclasses import replace

import numpy as np
import pytest

from attention_apps.applications import SpeechRecognizer
from attention_apps.training import History
from tests.applications.recognizers import GREEDY, LETTERS, SMALL_DECODER, make_config, wav_bytes, write_corpus
from tests.applications.test_predictor import BANNED, SPEECH, make_small

NO_TRAINING = History(0, 0.0, 0, [], None, None, "epochs")


@pytest.fixture(scope="module")
def recognizer():
    return make_small()


def test_a_manifest_without_a_column_is_named_with_those_it_has(recognizer, tmp_path):
    (tmp_path / "data.csv").write_text("audio,title\na.wav,hello\n")
    with pytest.raises(ValueError, match=r"data\.csv has no column `transcript`\. Columns found: audio, title"):
        recognizer.check_data(tmp_path / "data.csv", quiet=True)
    with pytest.raises(ValueError, match="`columns` must name some of audio, transcript. Received: text"):
        recognizer.check_data(tmp_path / "data.csv", columns={"text": "title"}, quiet=True)


def test_columns_may_have_other_names(recognizer, tmp_path):
    (tmp_path / "a.wav").write_bytes(wav_bytes(SPEECH[0]))
    (tmp_path / "data.csv").write_text("audio,title\na.wav,ab c\n")
    (row,) = recognizer.manifest(tmp_path / "data.csv", {"transcript": "title"}).rows()
    assert row["transcript"] == "ab c"


def test_an_evaluation_writes_what_the_verb_writes_and_counts_what_it_skips(recognizer, tmp_path):
    manifest = write_corpus(tmp_path, 5)
    (tmp_path / "broken.wav").write_bytes(b"broken")
    manifest.write_text(manifest.read_text() + "broken.wav\tA\teven\n")
    evaluation = recognizer.evaluate(manifest, quiet=True)
    assert evaluation.skipped == 1
    transcripts = recognizer.transcribe([tmp_path / f"{number}.wav" for number in range(5)], quiet=True)
    assert evaluation.texts == [transcript.text for transcript in transcripts]
    assert evaluation.sources == [str(tmp_path / f"{number}.wav") for number in range(5)]
    assert set(evaluation.metrics) == {"wer", "cer"}
    assert recognizer.evaluate(manifest, quiet=True, max_length=1).texts != evaluation.texts


def test_training_begins_with_the_lengths_and_the_share_of_unknown_tokens(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("attention_apps.applications.application.train", lambda *given, **named: [NO_TRAINING])
    manifest = write_corpus(tmp_path, 3)
    (tmp_path / "validation.tsv").write_text("audio\ttranscript\n0.wav\tAÜ\n")
    recognizer = SpeechRecognizer(make_config(decoder=SMALL_DECODER, decoding=GREEDY))
    recognizer.fit(manifest, tmp_path / "validation.tsv")
    shown = capsys.readouterr().err
    assert "training: length of `audio`" in shown
    assert "transcript 0.00%" in shown
    assert "transcript 50.00%" in shown


def test_new_words_join_the_vocabulary_and_the_old_ones_keep_their_weights(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("attention_apps.applications.application.train", lambda *given, **named: [NO_TRAINING])
    recognizer = make_small()
    recognizer.fit_language_model(["abc"], order=2)
    before = recognizer.transcribe(SPEECH)
    embedding = recognizer.model.decoder.embedding.weights[0].numpy()
    manifest = write_corpus(tmp_path, 2)
    manifest.write_text(manifest.read_text() + "0.wav\tÜÉ\teven\n")
    recognizer.fit(manifest)
    assert "New tokens in the vocabulary: 2\n" in capsys.readouterr().err
    assert recognizer.vocabulary.words[: len(LETTERS)] == LETTERS
    assert set(recognizer.vocabulary.words[len(LETTERS) :]) == {"Ü", "É"}
    grown = recognizer.model.decoder.embedding.weights[0].numpy()
    np.testing.assert_array_equal(grown[: len(embedding)], embedding)
    assert len(grown) == len(embedding) + 2
    assert recognizer.codec.language_model is None  # it counted other tokens
    assert recognizer.transcribe(SPEECH, banned_tokens=(*BANNED, 8, 9)).text == before.text
    recognizer.fit(manifest, quiet=True)
    assert "New tokens" not in capsys.readouterr().err


def test_a_preset_holds_out_data_is_scored_first_and_says_in_its_card_what_happened(recognizer, tmp_path, capsys):
    recognizer.save(tmp_path / "mine")
    recognizer = SpeechRecognizer.from_preset(tmp_path / "mine")
    training = replace(recognizer.config.training, epochs=1, validate_every="auto", learning_rate=1e-12)
    recognizer = recognizer.with_config(replace(recognizer.config, training=training))
    manifest = write_corpus(tmp_path, 10)
    before = recognizer.transcribe(SPEECH)
    (history,) = recognizer.fit(manifest, output=tmp_path / "run")
    shown = capsys.readouterr().err
    assert re.search(r"\n\d+ training examples, 2 for validation: 1 epochs, ", shown)
    assert "\nstep 0: wer " in shown
    assert "nothing beat the starting weights" in shown
    assert (history.best_step, history.validations[0]["step"]) == (0, 0)
    assert recognizer.transcribe(SPEECH).text == before.text
    recognizer.save(tmp_path / "tuned")
    card = (tmp_path / "tuned" / "README.md").read_text()
    assert "from `mine`" in card
    assert "nothing beat the starting weights" in card
    assert "warmup_steps = 0" in (tmp_path / "run" / "config.toml").read_text()
