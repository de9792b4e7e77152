"""The recognizer with a model that has learned little: what it takes, what it gives back, how it is kept."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from attention_apps.applications.recognizer_config import TranscriptionOptions
from attention_apps.applications.speech_recognizer import SpeechRecognizer
from attention_apps.preprocessing.audio import SAMPLE_RATE
from tests.applications.recognizers import LETTERS, make_config, make_recognizer, say, wav_bytes, write_corpus

SPEECH = say("AB C")
# The smallest of graphs.
GREEDY = {"beam_size": 1, "max_length": 9, "ctc_weight": 0.0, "min_confidence": 0.0}
SMALL_DECODER = {"embedding_dim": 6, "units": 14, "attend": "after", "attention": {"kind": "luong"}}


@pytest.fixture(scope="module")
def recognizer():
    return make_recognizer()


@pytest.fixture(scope="module")
def strict_options(recognizer):
    return replace(recognizer.config.decoding, min_confidence=0.9)


def test_a_transcript_has_text_score_words_alternatives_and_attention(recognizer):
    transcript = recognizer.transcribe(SPEECH, sample_rate=SAMPLE_RATE)
    assert set(transcript.tokens) <= set(LETTERS)
    assert transcript.text == " ".join("".join(transcript.tokens).split())
    assert [word.word for word in transcript.words] == transcript.text.split()
    assert len(transcript.alternatives) == 2
    assert transcript.alternatives[0] == (transcript.text, transcript.score)
    assert transcript.score >= transcript.alternatives[1][1]
    assert transcript.seconds == pytest.approx(len(SPEECH) / SAMPLE_RATE)
    assert transcript.attention.shape == (len(transcript.tokens), 30)
    np.testing.assert_allclose(transcript.attention.sum(1), 1, atol=1e-5)
    for word in transcript.words:
        assert 0 <= word.start <= word.end <= transcript.seconds
        assert 0 <= word.confidence <= 1


def test_paths_bytes_and_arrays_are_the_same_recording(recognizer, tmp_path):
    contents = wav_bytes(SPEECH, subtype="FLOAT")
    (tmp_path / "a.wav").write_bytes(contents)
    sources = [str(tmp_path / "a.wav"), tmp_path / "a.wav", contents, SPEECH]
    transcripts = recognizer.transcribe(sources, sample_rate=SAMPLE_RATE)
    assert len({(transcript.text, round(transcript.score, 3)) for transcript in transcripts}) == 1
    assert transcripts[0].source == sources[0]


def test_a_recording_has_the_same_transcript_in_any_company(recognizer):
    alone = recognizer.transcribe(SPEECH, sample_rate=SAMPLE_RATE)
    long = say("CBACBACBA")
    together = recognizer.transcribe([long, SPEECH, say("A")], sample_rate=SAMPLE_RATE)[1]
    assert together.text == alone.text
    assert together.score == pytest.approx(alone.score, abs=1e-3)


def test_broken_recordings_in_a_list_get_their_errors_and_the_others_their_transcripts(recognizer, tmp_path):
    (tmp_path / "text.wav").write_text("this is no recording")
    sources = [SPEECH, str(tmp_path / "text.wav"), str(tmp_path / "missing.wav"), SPEECH]
    transcripts = recognizer.transcribe(sources, sample_rate=SAMPLE_RATE)
    assert [transcript.error is None for transcript in transcripts] == [True, False, False, True]
    assert "text.wav" in transcripts[1].error
    assert "missing.wav" in transcripts[2].error
    assert transcripts[1].text == ""
    assert transcripts[1].words == []
    assert transcripts[0].text == transcripts[3].text


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "is empty"),
        (wav_bytes(np.zeros(0, np.float32)), "has no samples"),
        (b"RIFF this is a text", "not a recording"),
        (wav_bytes(np.full(999, np.nan, np.float32), subtype="FLOAT"), "not finite"),
    ],
    ids=["empty", "header alone", "text", "NaN"],
)
def test_what_is_no_recording_raises(recognizer, contents, message):
    with pytest.raises(ValueError, match=message):
        recognizer.transcribe(contents)


@pytest.mark.parametrize("rate", [99, 385_000])
def test_rates_out_of_range_raise(recognizer, rate):
    with pytest.raises(ValueError, match="must have a sample rate from 100 to 384,000"):
        recognizer.transcribe(np.zeros(4000, np.float32), sample_rate=rate)


@pytest.mark.parametrize("rate", [100, 8_000, 384_000])
def test_unusual_rates_are_resampled(recognizer, rate):
    noise = np.random.default_rng(0).normal(0, 0.1, rate).astype(np.float32)
    assert recognizer.transcribe(noise, sample_rate=rate).seconds == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    "waveform",
    [
        np.zeros(2 * SAMPLE_RATE, np.float32),
        np.full(SAMPLE_RATE, 0.25, np.float32),
        np.random.default_rng(0).normal(0, 0.2, 800).astype(np.float32),
    ],
    ids=["silence", "a constant", "0.05 s"],
)
def test_where_nothing_can_be_said_the_text_is_empty(recognizer, waveform):
    transcript = recognizer.transcribe(waveform, sample_rate=SAMPLE_RATE)
    assert (transcript.text, transcript.words, transcript.error) == ("", [], None)
    assert transcript.alternatives == [("", 0.0)]
    assert transcript.attention.shape[0] == 0


def test_a_text_that_the_recognizer_is_not_sure_of_is_not_given(recognizer, strict_options):
    noise = np.random.default_rng(0).normal(0, 0.2, SAMPLE_RATE).astype(np.float32)
    believed = recognizer.transcribe(noise, sample_rate=SAMPLE_RATE)
    assert believed.text
    assert believed.confidence < 0.9
    doubted = recognizer.transcribe(noise, strict_options, sample_rate=SAMPLE_RATE)
    assert (doubted.text, doubted.words, doubted.tokens) == ("", [], [])
    assert doubted.alternatives[1] == believed.alternatives[1]


def test_a_clipped_recording_is_transcribed(recognizer):
    clipped = np.clip(50 * SPEECH, -1, 1)
    assert recognizer.transcribe(clipped, sample_rate=SAMPLE_RATE).error is None


def test_an_mp3_with_a_broken_tail_is_transcribed_up_to_there(recognizer):
    contents = wav_bytes(np.tile(SPEECH, 4), file_format="MP3")
    half = contents[: len(contents) // 2]
    damaged = half + np.random.default_rng(0).bytes(2000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transcript = recognizer.transcribe(damaged)
    assert transcript.error is None
    assert 1.5 < transcript.seconds < 3.5


def test_a_long_recording_is_cut_at_its_pauses_and_joined_with_the_right_times(recognizer):
    phrase = np.concatenate([say("ABC", noise=0), np.zeros(SAMPLE_RATE // 2, np.float32)])
    long = np.tile(phrase, 8)
    transcript = recognizer.transcribe(long, sample_rate=SAMPLE_RATE)
    assert transcript.seconds == pytest.approx(len(long) / SAMPLE_RATE)
    assert len(transcript.parts) > 3
    for left, right in zip(transcript.parts, transcript.parts[1:]):
        assert left.end == pytest.approx(right.start)
        assert not 0.2 < right.start % 1.5 < 0.8  # where each phrase has sound
    assert max(part.end - part.start for part in transcript.parts) <= recognizer.config.max_seconds
    assert all(left.end <= right.start for left, right in zip(transcript.words, transcript.words[1:]))
    assert transcript.text == " ".join(part.alternatives[0][0] for part in transcript.parts if part.tokens)
    assert transcript.attention.shape == (len(transcript.tokens), 300)


def test_more_recordings_than_are_looked_at_together_come_back_in_order(recognizer):
    recordings = [say("ABC"[: 1 + number % 3], letter_seconds=0.1, seed=number) for number in range(70)]
    texts = [transcript.text for transcript in recognizer.transcripts(iter(recordings), sample_rate=SAMPLE_RATE)]
    assert len(texts) == 70
    for number in (0, 1, 65, 69):
        assert texts[number] == recognizer.transcribe(recordings[number], sample_rate=SAMPLE_RATE).text


def test_options_of_a_call_win_over_those_of_the_configuration(recognizer):
    options = TranscriptionOptions(**{**GREEDY, "max_length": 2})
    transcript = recognizer.transcribe(SPEECH, options, sample_rate=SAMPLE_RATE)
    assert len(transcript.alternatives) == 1
    assert len(transcript.tokens) <= 2


def test_ctc_has_a_part_in_the_score(recognizer):
    alone = replace(recognizer.config.decoding, ctc_weight=0.0)
    assert (
        recognizer.transcribe(SPEECH, alone, SAMPLE_RATE).score > recognizer.transcribe(SPEECH, None, SAMPLE_RATE).score
    )


def test_another_attention_goes_in_by_one_line(recognizer):
    config = make_config(decoding=GREEDY)
    decoder = replace(config.decoder, attention=replace(config.decoder.attention, kind="multi_head", units=8))
    other = SpeechRecognizer(replace(config, decoder=decoder), recognizer.vocabulary)
    transcript = other.transcribe(SPEECH, sample_rate=SAMPLE_RATE)
    assert transcript.attention.shape == (len(transcript.tokens), 30)


def test_a_language_model_has_a_part_in_the_score_and_is_saved(tmp_path):
    recognizer = make_recognizer(decoding={**GREEDY, "language_model_weight": 1.0}, decoder=SMALL_DECODER)
    with pytest.raises(ValueError, match="`language_model_weight` must be 0 without a language model"):
        recognizer.transcribe(SPEECH, sample_rate=SAMPLE_RATE)
    recognizer.fit_language_model(["b b b", "B b"] * 20, order=3)
    transcript = recognizer.transcribe(SPEECH, sample_rate=SAMPLE_RATE)
    assert set(transcript.tokens) <= {"B", " "}
    recognizer.save(tmp_path / "model")
    assert SpeechRecognizer.load(tmp_path / "model").language_model.to_text() == recognizer.language_model.to_text()


def test_it_learns_from_a_manifest_is_saved_loaded_and_measured(tmp_path):
    manifest = write_corpus(tmp_path / "data", 12)
    recognizer = SpeechRecognizer(make_config(decoding=GREEDY, decoder=SMALL_DECODER))
    (history,) = recognizer.fit(manifest, manifest, output=tmp_path / "run", quiet=True)
    assert set(recognizer.vocabulary.tokens[4:]) == {"A", "B", "C"}
    assert set(history.validations[-1]) == {"step", "epoch", "wer", "cer"}
    recognizer.save(tmp_path / "model")
    again = SpeechRecognizer.load(tmp_path / "model")
    assert again.config == recognizer.config
    evaluation = again.evaluate(manifest, quiet=True)
    assert evaluation.references[0][0].isupper()
    assert evaluation.metrics["wer"].score == pytest.approx(history.best)
    assert evaluation.metrics["cer"].score == pytest.approx(history.validations[-1]["cer"])


def test_it_learns_from_its_error_rate(tmp_path):
    training = {"epochs": 0, "batch_size": 6, "self_critical": {"epochs": 1, "metric": "cer", "samples": 2}}
    recognizer = make_recognizer(decoding=GREEDY, decoder=SMALL_DECODER, training=training)
    manifest = write_corpus(tmp_path / "data", 6)
    (history,) = recognizer.fit(manifest, output=tmp_path / "run", quiet=True)
    assert history.steps > 0
    examples = recognizer._examples(list(recognizer.manifest(manifest).rows()), tmp_path, True, training=True)
    heard = recognizer.vocabulary.encode(list(examples.references(0)[0]))
    figures = recognizer._rewarded(examples).reward([list(heard), list(heard)[1:]], [0, 0])
    assert figures.tolist() == pytest.approx([0, -1 / len(heard)])


def test_new_letters_are_learned_in_addition(tmp_path):
    recognizer = make_recognizer(decoding=GREEDY, decoder=SMALL_DECODER, training={"epochs": 1, "batch_size": 5})
    recognizer.transcribe(SPEECH, sample_rate=SAMPLE_RATE)
    manifest = write_corpus(tmp_path, 4)
    manifest.write_text(manifest.read_text() + "0.wav\tÜA\teven\n")
    report = recognizer.check_data(manifest, quiet=True)
    (problem,) = [problem for problem in report.problems if problem.kind == "unknown"]
    assert problem.line == 6
    assert "Ü" in problem.message
    recognizer.fit(manifest, quiet=True)
    assert "Ü" in recognizer.vocabulary
    assert recognizer.transcribe(SPEECH, sample_rate=SAMPLE_RATE).error is None


def test_a_text_too_long_for_its_recording_is_left_out(tmp_path, recognizer):
    manifest = write_corpus(tmp_path, 3)
    manifest.write_text(manifest.read_text() + f"0.wav\t{'AAB' * 12}\teven\n0.wav\t{'AABB'}\teven\n")
    report = SpeechRecognizer(make_config(decoding={"max_length": 99})).check_data(manifest, quiet=True)
    assert report.counts["unusable"] == 1
    assert "letters" in report.problems[0].message


def test_a_recognizer_without_a_model_says_how_to_get_one():
    with pytest.raises(ValueError, match="This SpeechRecognizer has no model yet"):
        SpeechRecognizer().transcribe(SPEECH, sample_rate=SAMPLE_RATE)
