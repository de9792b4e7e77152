"""The recognizer with a model that has learned little: what it takes, what it gives back, how it is kept."""

import io
import sys
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from attention_apps.applications import listening_progress, recording_pieces
from attention_apps.applications.listening_progress import ListeningProgress
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


def test_a_part_of_a_long_recording_is_that_stretch_alone_at_its_time(recognizer):
    long = np.concatenate([say(text, seed=number) for number, text in enumerate(["AB", "C", "BCA", "CC A", "B"] * 2)])
    parts = recognizer.transcribe(long, sample_rate=SAMPLE_RATE).parts
    assert len(parts) > 2
    for part in parts:
        stretch = long[round(part.start * SAMPLE_RATE) : round(part.end * SAMPLE_RATE)]
        alone = recognizer.transcribe(stretch, sample_rate=SAMPLE_RATE)
        assert [word.word for word in part.words] == [word.word for word in alone.words]
        for word, same in zip(part.words, alone.words, strict=True):
            assert word[1:3] == pytest.approx([part.start + same.start, part.start + same.end], abs=1e-6)


def test_a_long_recording_is_never_in_memory_as_a_whole(recognizer, monkeypatch):
    count, block = 90, np.zeros(30 * SAMPLE_RATE, np.float32)
    monkeypatch.setattr(recording_pieces, "audio_blocks", lambda *_: (block.copy() for _ in range(count)))
    tracemalloc.start()
    try:
        transcript = recognizer.transcribe("long.wav")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert transcript.seconds == pytest.approx(30 * count)
    assert most < 0.25 * count * block.nbytes


@pytest.fixture
def terminal(monkeypatch):
    """What is written to a terminal that shows stdout and stderr."""
    written = io.StringIO()
    monkeypatch.setattr(listening_progress, "Console", lambda stderr: Console(file=written, force_terminal=True))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    return written


def test_the_bar_of_a_long_recording_is_gone_when_its_transcript_is_there(recognizer, terminal):
    long = np.tile(say("ABC"), 8)
    erased = "\x1b[1A\x1b[2K"
    for number, _ in enumerate(recognizer.transcripts([long, SPEECH, long], sample_rate=SAMPLE_RATE)):
        assert terminal.getvalue().endswith(erased)
        assert terminal.getvalue().count(erased) == (1, 1, 2)[number]
    before = terminal.getvalue()
    recognizer.transcribe(long, sample_rate=SAMPLE_RATE, quiet=True)
    assert terminal.getvalue() == before


def test_the_bar_moves_after_each_batch(recognizer, monkeypatch):
    monkeypatch.setattr(recording_pieces, "BATCH_SECONDS", 2 * recognizer.config.max_seconds)
    hear, events = recognizer._transcribe_batch, []
    monkeypatch.setattr(recognizer, "_transcribe_batch", lambda *given: events.append("batch") or hear(*given))
    monkeypatch.setattr(ListeningProgress, "update", lambda self, source, seconds: events.append("update"))
    recognizer.transcribe(np.tile(say("ABC"), 16), sample_rate=SAMPLE_RATE)
    assert events[:6] == ["batch", "update", "update"] * 2


def test_after_a_recording_that_fails_the_next_has_a_bar_of_its_own_length(recognizer, terminal, monkeypatch, tmp_path):
    broken = np.tile(say("ABC"), 36)
    broken[-SAMPLE_RATE] = np.nan
    for name, waveform in (("broken.wav", broken), ("long.wav", np.tile(say("CAB"), 8))):
        (tmp_path / name).write_bytes(wav_bytes(waveform, subtype="FLOAT"))
    add_task, totals = listening_progress.Progress.add_task, []

    def add(self, description, total):
        totals.append(total)
        return add_task(self, description, total=total)

    monkeypatch.setattr(listening_progress.Progress, "add_task", add)
    failed, fine = recognizer.transcribe([tmp_path / "broken.wav", tmp_path / "long.wav"])
    assert "not finite" in failed.error
    assert fine.error is None
    assert totals == [36.0, 8.0]


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


@pytest.mark.parametrize("front_end", ["convolutional", "pyramidal"])
@pytest.mark.parametrize("kind", ["additive", "multi_head"])
def test_another_attention_and_another_front_end_go_in_by_one_line_each(recognizer, kind, front_end):
    filters = {"convolutional": 3, "pyramidal": 64}[front_end]
    encoder = {"units": 10, "num_layers": 1, "front_end": front_end, "filters": filters}
    config = make_config(decoding=GREEDY, encoder=encoder)
    decoder = replace(config.decoder, attention=replace(config.decoder.attention, kind=kind, units=8))
    other = SpeechRecognizer(replace(config, decoder=decoder), recognizer.vocabulary)
    transcript = other.transcribe(SPEECH, sample_rate=SAMPLE_RATE)
    assert transcript.attention.shape == (len(transcript.tokens), 30)
    assert [word.word for word in transcript.words] == transcript.text.split()


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


def test_a_language_model_is_learned_along_with_the_rest_and_kept(tmp_path):
    recognizer = SpeechRecognizer(
        make_config(decoding=GREEDY, decoder=SMALL_DECODER, language_model_order=3, training={"epochs": 1})
    )
    recognizer.fit(write_corpus(tmp_path / "data", 5), output=tmp_path / "run", quiet=True)
    assert recognizer.language_model.vocabulary_size == len(recognizer.vocabulary)
    recognizer.save(tmp_path / "model")
    again = SpeechRecognizer.load(tmp_path / "model")
    assert again.language_model.to_text() == recognizer.language_model.to_text()


def test_a_recording_with_a_bad_sample_late_in_it_is_named_and_the_others_are_learned_from(tmp_path, capsys):
    manifest = write_corpus(tmp_path / "data", 5)
    waveform = np.tile(say("ABC"), 3)
    waveform[-7] = np.nan
    (tmp_path / "data" / "late.wav").write_bytes(wav_bytes(waveform, subtype="FLOAT"))
    manifest.write_text(manifest.read_text() + "late.wav\tABC\teven\n")
    recognizer = SpeechRecognizer(make_config(decoding=GREEDY, decoder=SMALL_DECODER, training={"epochs": 1}))
    (history,) = recognizer.fit(manifest, output=tmp_path / "run")
    assert history.steps > 0
    told = capsys.readouterr().err
    assert "corpus.tsv, line 7" in told
    assert "late.wav has samples that are not finite numbers, the first at 3.00 s" in told


def test_rows_with_letters_that_are_not_learned_are_named_in_training_and_evaluation(tmp_path, capsys):
    manifest = write_corpus(tmp_path / "data", 5)
    validation = tmp_path / "data" / "validation.tsv"
    validation.write_text("audio\ttranscript\n0.wav\tAB\n1.wav\tBÜ\n")
    recognizer = SpeechRecognizer(make_config(decoding=GREEDY, decoder=SMALL_DECODER, training={"epochs": 1}))
    problem = f"unknown: {validation}, line 3: `transcript` has tokens that are not in the vocabulary: Ü"
    (listed,) = [one for one in recognizer.check_data(manifest, validation).problems if one.kind == "unknown"]
    assert problem == f"unknown: {listed}"
    capsys.readouterr()
    recognizer.fit(manifest, validation, output=tmp_path / "run")
    assert problem in capsys.readouterr().err
    recognizer.evaluate(validation)
    assert problem in capsys.readouterr().err


def test_an_evaluation_believes_what_its_options_say(tmp_path, recognizer, strict_options):
    manifest = write_corpus(tmp_path, 3)
    assert any(recognizer.evaluate(manifest, quiet=True).texts)
    assert recognizer.evaluate(manifest, options=strict_options, quiet=True).texts == ["", "", ""]


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
