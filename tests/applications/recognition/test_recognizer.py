"""The recognizer with a tiny model: what it takes, what it returns, how it is trained, saved and exported."""

import io
import tracemalloc
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rich.console
from rich.console import Console

from attention_apps.applications import SpeechRecognizer
from attention_apps.applications.recognition import reader as reading
from attention_apps.preprocessing.audio import SAMPLE_RATE, read_audio
from attention_apps.serving import LoadedModel
from tests.applications.recognizers import (
    GREEDY,
    LETTERS,
    SMALL_DECODER,
    bound_examples,
    make_config,
    make_moonshine,
    make_recognizer,
    say,
    wav_bytes,
    write_corpus,
)
from tests.serving.fresh_process import call_in_fresh_process

RECORDINGS = Path(__file__).parents[2] / "recordings"
SPEECH = say("AB C")
NOISE = np.random.default_rng(0).normal(0, 0.2, SAMPLE_RATE).astype(np.float32)


@pytest.fixture(scope="module")
def recognizer():
    return make_recognizer()


def pairs(waveforms):
    return [(waveform, SAMPLE_RATE) for waveform in waveforms]


def make_small(**changes):
    """A recognizer that is quick to trace."""
    return make_recognizer(decoding=GREEDY, decoder=SMALL_DECODER, **changes)


# Answers


def test_a_transcript_has_text_score_words_alternatives_and_attention(recognizer):
    transcript = recognizer.transcribe((SPEECH, SAMPLE_RATE))
    assert set(transcript.tokens) <= set(LETTERS)
    assert transcript.text == " ".join("".join(transcript.tokens).split())
    assert [word.word for word in transcript.words] == transcript.text.split()
    assert len(transcript.alternatives) == 2
    assert transcript.alternatives[0] == (transcript.text, transcript.score)
    assert transcript.score >= transcript.alternatives[1][1]
    assert transcript.seconds == pytest.approx(len(SPEECH) / SAMPLE_RATE)
    assert transcript.attention.shape == (len(transcript.tokens), 30)
    np.testing.assert_allclose(transcript.attention.sum(1), 1, atol=1e-5)
    assert 0 < transcript.confidence < 1
    for word in transcript.words:
        assert 0 <= word.start <= word.end <= transcript.seconds
        assert 0 <= word.confidence <= 1


def test_paths_bytes_and_arrays_are_the_same_recording(recognizer, tmp_path):
    contents = wav_bytes(SPEECH, subtype="FLOAT")
    (tmp_path / "a.wav").write_bytes(contents)
    items = [str(tmp_path / "a.wav"), tmp_path / "a.wav", contents, (SPEECH, SAMPLE_RATE)]
    transcripts = recognizer.transcribe(items)
    assert len({(transcript.text, round(transcript.score, 3)) for transcript in transcripts}) == 1
    assert [transcript.source for transcript in transcripts[:3]] == items[:3]
    assert transcripts[3].source is items[3]


def test_a_recording_has_the_same_transcript_in_any_company(recognizer):
    alone = recognizer.transcribe((SPEECH, SAMPLE_RATE))
    together = recognizer.transcribe(pairs([say("CBACBACBA"), SPEECH, say("A")]))[1]
    assert together.text == alone.text
    assert together.score == pytest.approx(alone.score, abs=1e-3)
    assert together.confidence == pytest.approx(alone.confidence, abs=1e-3)


def test_broken_recordings_in_a_list_get_their_errors_and_the_others_their_transcripts(recognizer, tmp_path):
    (tmp_path / "text.wav").write_text("this is no recording")
    speech = (SPEECH, SAMPLE_RATE)
    transcripts = recognizer.transcribe(
        [speech, str(tmp_path / "text.wav"), str(tmp_path / "missing.wav"), speech, SPEECH]
    )
    assert [transcript.error is None for transcript in transcripts] == [True, False, False, True, False]
    assert "text.wav" in transcripts[1].error
    assert "missing.wav" in transcripts[2].error
    assert (transcripts[1].text, transcripts[1].words, transcripts[1].unsure) == ("", [], False)
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
def test_a_single_recording_that_cannot_be_read_raises(recognizer, contents, message):
    with pytest.raises(ValueError, match=message):
        recognizer.transcribe(contents)


def test_a_single_file_that_is_not_there_raises(recognizer):
    with pytest.raises(FileNotFoundError, match="missing.wav"):
        recognizer.transcribe("missing.wav")


@pytest.mark.parametrize("rate", [4_000, 8_000, 384_000])
def test_unusual_rates_are_resampled(recognizer, rate):
    noise = np.random.default_rng(0).normal(0, 0.1, rate).astype(np.float32)
    assert recognizer.transcribe((noise, rate)).seconds == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("waveform", [np.zeros(2 * SAMPLE_RATE), NOISE[:800]], ids=["silence", "0.05 s"])
def test_where_nothing_can_be_said_the_text_is_empty(recognizer, waveform):
    transcript = recognizer.transcribe((np.float32(waveform), SAMPLE_RATE))
    assert (transcript.text, transcript.words, transcript.error) == ("", [], None)
    assert transcript.alternatives == [("", 0.0)]
    assert transcript.attention.shape[0] == 0
    assert not transcript.unsure


def test_a_text_that_the_recognizer_is_not_sure_of_is_withheld(recognizer):
    believed = recognizer.transcribe((NOISE, SAMPLE_RATE))
    assert believed.text
    assert believed.confidence < 0.9
    doubted = recognizer.transcribe((NOISE, SAMPLE_RATE), min_confidence=0.9)
    assert (doubted.text, doubted.words, doubted.tokens, doubted.unsure) == ("", [], [], True)
    assert doubted.alternatives[1] == believed.alternatives[1]


def test_an_mp3_with_a_broken_tail_is_transcribed_up_to_there(recognizer):
    contents = wav_bytes(np.tile(SPEECH, 4), file_format="MP3")
    damaged = contents[: len(contents) // 2] + np.random.default_rng(0).bytes(2000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transcript = recognizer.transcribe(damaged)
    assert transcript.error is None
    assert 1.5 < transcript.seconds < 3.5


# Long recordings


def test_a_long_recording_is_cut_at_its_pauses_and_joined_with_the_right_times(recognizer):
    phrase = np.concatenate([say("ABC", noise=0), np.zeros(SAMPLE_RATE // 2, np.float32)])
    long = np.tile(phrase, 8)
    transcript = recognizer.transcribe((long, SAMPLE_RATE))
    assert transcript.seconds == pytest.approx(len(long) / SAMPLE_RATE)
    assert len(transcript.parts) > 3
    for left, right in zip(transcript.parts, transcript.parts[1:]):
        assert left.end == pytest.approx(right.start)
        assert not 0.2 < right.start % 1.5 < 0.8  # where each phrase has sound
    assert max(part.end - part.start for part in transcript.parts) <= recognizer.config.max_seconds
    assert all(left.end <= right.start for left, right in zip(transcript.words, transcript.words[1:]))
    assert transcript.text == " ".join(part.alternatives[0][0] for part in transcript.parts if part.tokens)
    assert transcript.attention.shape == (len(transcript.tokens), 300)


def test_a_silent_stretch_in_the_middle_changes_nothing_of_what_is_around_it(recognizer):
    pause = 9.0
    waveform = np.concatenate([SPEECH, np.zeros(round(pause * SAMPLE_RATE), np.float32), say("CAB")])
    transcript = recognizer.transcribe((waveform, SAMPLE_RATE))
    silent = [part for part in transcript.parts if part.alternatives == [("", 0.0)]]
    assert silent
    assert not any(part.tokens for part in silent)
    assert transcript.seconds == pytest.approx(len(waveform) / SAMPLE_RATE)
    assert len(transcript.alternatives) == 2
    for part in transcript.parts:
        if part.tokens:
            stretch = waveform[round(part.start * SAMPLE_RATE) : round(part.end * SAMPLE_RATE)]
            alone = recognizer.transcribe((stretch, SAMPLE_RATE))
            assert alone.text == part.alternatives[0][0]
            for word, same in zip(part.words, alone.words, strict=True):
                assert word[1:3] == pytest.approx([part.start + same.start, part.start + same.end], abs=2e-3)


def test_evaluate_scores_long_recordings_cut_as_transcribe_cuts_them(recognizer, tmp_path):
    paths = sorted(RECORDINGS.glob("*.flac"))
    joined = np.concatenate([read_audio(path) for path in paths])
    (tmp_path / "joined.wav").write_bytes(wav_bytes(joined))
    reference = " ".join(["ab c"] * 9)  # longer than what is written for one piece
    (tmp_path / "data.tsv").write_text(f"audio\ttranscript\njoined.wav\t{reference}\n{paths[0]}\tab\n")
    expected = recognizer.transcribe([tmp_path / "joined.wav", paths[0]])
    assert len(joined) / SAMPLE_RATE > 2 * recognizer.config.max_seconds
    assert len(expected[0].parts) > 2
    evaluation = recognizer.evaluate(tmp_path / "data.tsv", quiet=True)
    assert evaluation.texts == [transcript.text for transcript in expected]
    assert evaluation.skipped == 0
    assert evaluation.metrics["wer"].details["reference_length"] == 19


def test_a_long_recording_is_never_in_memory_as_a_whole(recognizer, monkeypatch):
    count, block = 90, np.zeros(30 * SAMPLE_RATE, np.float32)
    block[:SAMPLE_RATE] = NOISE
    recognizer.transcribe((NOISE, SAMPLE_RATE))  # traced already, which takes memory too
    monkeypatch.setattr(reading, "audio_blocks", lambda *_: (block.copy() for _ in range(count)))
    tracemalloc.start()
    try:
        transcript = recognizer.transcribe("long.wav", quiet=True)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert transcript.seconds == pytest.approx(30 * count)
    assert sum(bool(part.tokens) for part in transcript.parts) >= count
    assert most < 0.25 * count * block.nbytes


def test_the_bar_of_a_long_recording_is_gone_when_its_transcript_is_there(recognizer, monkeypatch):
    written, erased = io.StringIO(), "\x1b[1A\x1b[2K"
    monkeypatch.setattr(rich.console, "Console", lambda stderr: Console(file=written, force_terminal=True))
    long = np.tile(say("ABC"), 8)
    for number, _ in enumerate(recognizer.run(pairs([long, SPEECH, long]), quiet=False)):
        assert written.getvalue().endswith(erased)
        assert written.getvalue().count(erased) == (1, 1, 2)[number]
    before = written.getvalue()
    recognizer.transcribe((long, SAMPLE_RATE), quiet=True)
    assert written.getvalue() == before


def test_more_recordings_than_are_read_together_come_back_in_order(recognizer):
    recordings = [say("ABC"[: 1 + number % 3], letter_seconds=0.1, seed=number) for number in range(70)]
    texts = [transcript.text for transcript in recognizer.run(iter(pairs(recordings)))]
    assert len(texts) == 70
    for number in (0, 1, 65, 69):
        assert texts[number] == recognizer.transcribe((recordings[number], SAMPLE_RATE)).text


# Options and parts


def test_ctc_has_a_part_in_the_score(recognizer):
    speech = (SPEECH, SAMPLE_RATE)
    assert recognizer.transcribe(speech, ctc_weight=0.0).score > recognizer.transcribe(speech).score


@pytest.mark.parametrize(("kind", "front_end"), [("additive", "pyramidal"), ("multi_head", "convolutional")])
def test_another_attention_and_another_front_end_go_in_by_one_line_each(recognizer, kind, front_end):
    filters = {"convolutional": 3, "pyramidal": 64}[front_end]
    encoder = {"units": 10, "num_layers": 1, "front_end": front_end, "filters": filters}
    config = make_config(decoding=GREEDY, encoder=encoder)
    decoder = replace(config.decoder, attention=replace(config.decoder.attention, kind=kind, units=8))
    other = SpeechRecognizer(replace(config, decoder=decoder), recognizer.vocabulary)
    transcript = other.transcribe((SPEECH, SAMPLE_RATE))
    assert transcript.attention.shape == (len(transcript.tokens), 30)
    assert [word.word for word in transcript.words] == transcript.text.split()


def test_a_language_model_has_a_part_in_the_score_and_is_saved(tmp_path):
    recognizer = make_recognizer(decoding={**GREEDY, "language_model_weight": 1.0}, decoder=SMALL_DECODER)
    with pytest.raises(ValueError, match="`language_model_weight` must be 0 without a language model"):
        recognizer.transcribe((SPEECH, SAMPLE_RATE))
    recognizer.fit_language_model(["b b b", "B b"] * 20, order=3)
    assert set(recognizer.transcribe((SPEECH, SAMPLE_RATE)).tokens) <= {"B", " "}
    recognizer.save(tmp_path / "model")
    assert SpeechRecognizer.from_preset(tmp_path / "model").codec.files() == recognizer.codec.files()


# Training


def test_it_is_trained_saved_loaded_and_evaluated(tmp_path):
    manifest = write_corpus(tmp_path / "data", 12)
    recognizer = SpeechRecognizer(make_config(decoding=GREEDY, decoder=SMALL_DECODER, language_model_order=3))
    (history,) = recognizer.fit(manifest, manifest, output=tmp_path / "run", quiet=True)
    assert set(recognizer.vocabulary.words) == {"A", "B", "C"}
    assert set(history.validations[-1]) == {"step", "epoch", "wer", "cer"}
    recognizer.save(tmp_path / "model")
    again = SpeechRecognizer.from_preset(tmp_path / "model")
    assert replace(again.config, training=recognizer.config.training) == recognizer.config
    assert again.codec.language_model.to_text() == recognizer.codec.language_model.to_text()
    evaluation = again.evaluate(manifest, quiet=True)
    assert evaluation.references[0][0].isupper()
    assert evaluation.metrics["wer"].score == pytest.approx(history.best)
    assert evaluation.metrics["cer"].score == pytest.approx(history.validations[-1]["cer"])
    assert again.evaluate(manifest, quiet=True, min_confidence=1.0).texts == [""] * 12


def test_bad_recordings_and_unknown_letters_are_named_and_the_rest_is_used(tmp_path, capsys):
    manifest = write_corpus(tmp_path / "data", 5)
    waveform = np.tile(say("ABC"), 3)
    waveform[-7] = np.nan
    (tmp_path / "data" / "late.wav").write_bytes(wav_bytes(waveform, subtype="FLOAT"))
    manifest.write_text(manifest.read_text() + "late.wav\tABC\teven\n")
    validation = tmp_path / "data" / "validation.tsv"
    validation.write_text("audio\ttranscript\n0.wav\tAB\n1.wav\tBÜ\n")
    recognizer = SpeechRecognizer(make_config(decoding=GREEDY, decoder=SMALL_DECODER, training={"epochs": 1}))
    (history,) = recognizer.fit(manifest, validation, output=tmp_path / "run")
    assert history.steps > 0
    shown = capsys.readouterr().err
    assert "corpus.tsv, line 7" in shown
    assert "late.wav has samples that are not finite numbers, the first at 3.00 s" in shown
    problem = f"unknown: {validation}, line 3: `transcript` has tokens that are not in the vocabulary: Ü"
    assert problem in shown
    recognizer.evaluate(validation)
    assert problem in capsys.readouterr().err


def test_it_is_rewarded_for_a_low_error_rate(tmp_path):
    training = {"epochs": 0, "batch_size": 6, "self_critical": {"epochs": 1, "metric": "cer", "samples": 2}}
    recognizer = make_small(training=training)
    manifest = write_corpus(tmp_path / "data", 6)
    (history,) = recognizer.fit(manifest, output=tmp_path / "run", quiet=True)
    assert history.steps > 0
    examples = bound_examples(recognizer, manifest, tmp_path)
    heard = recognizer.vocabulary.encode(list(examples.references[0][0]))
    rewards = recognizer._rewarded(examples).reward([list(heard), list(heard)[1:]], [0, 0])
    assert rewards.tolist() == pytest.approx([0, -1 / len(heard)])


def test_new_letters_are_added_to_the_vocabulary_and_the_model(tmp_path):
    recognizer = make_small(training={"epochs": 1, "batch_size": 5})
    recognizer.transcribe((SPEECH, SAMPLE_RATE))
    manifest = write_corpus(tmp_path, 4)
    manifest.write_text(manifest.read_text() + "0.wav\tÜA\teven\n")
    (problem,) = [one for one in recognizer.check_data(manifest, quiet=True).problems if one.kind == "unknown"]
    assert problem.line == 6
    assert "Ü" in problem.message
    recognizer.fit(manifest, quiet=True)
    assert recognizer.vocabulary.words == (*LETTERS, "Ü")
    assert recognizer.transcribe((SPEECH, SAMPLE_RATE)).error is None


# Moonshine


@pytest.fixture(scope="module")
def moonshine():
    return make_moonshine()


def test_moonshine_writes_words_with_times_and_confidences(moonshine):
    transcript = moonshine.transcribe((SPEECH, SAMPLE_RATE))
    assert transcript.text
    assert transcript.text == " ".join("".join(transcript.tokens).split())
    assert [word.word for word in transcript.words] == transcript.text.split()
    assert transcript.attention.shape[0] == len(transcript.tokens)
    np.testing.assert_allclose(transcript.attention.sum(1), 1, atol=1e-5)
    assert len(transcript.alternatives) == 2
    for word in transcript.words:
        assert 0 <= word.start <= word.end <= transcript.seconds


def test_a_language_model_of_sub_words_is_refused(moonshine):
    with pytest.raises(ValueError, match="recognizers that write letters"):
        moonshine.fit_language_model(["a b"], order=2)


def test_moonshine_writes_the_same_text_in_any_company(moonshine):
    recordings = pairs([say("CBACBACBA"), SPEECH, say("A"), SPEECH[: SAMPLE_RATE // 10 + 1]])
    alone = [moonshine.transcribe(recording) for recording in recordings]
    assert len({transcript.text for transcript in alone}) > 1
    for one, other in zip(moonshine.transcribe(recordings), alone, strict=True):
        assert one.text == other.text
        assert one.score == pytest.approx(other.score, abs=1e-3)
        assert [word[1:3] for word in one.words] == [word[1:3] for word in other.words]


@pytest.mark.parametrize("waveform", [np.zeros(2 * SAMPLE_RATE), NOISE[:800]], ids=["silence", "0.05 s"])
def test_moonshine_hears_nothing_in_silence(moonshine, waveform):
    transcript = moonshine.transcribe((np.float32(waveform), SAMPLE_RATE))
    assert (transcript.text, transcript.unsure, transcript.error) == ("", False, None)


def test_moonshine_writes_no_more_than_fits_into_a_recording():
    config = make_moonshine().config
    sizes = replace(config.moonshine, tokens_per_second=4.0, silence_threshold=1.0)
    recognizer = make_moonshine().with_config(replace(config, moonshine=sizes))
    embedding = recognizer.model.decoder.embedding.numpy()
    embedding[:, 2] = 0  # the end is never likely
    recognizer.model.decoder.embedding.assign(embedding)
    transcripts = recognizer.transcribe(pairs([SPEECH[:SAMPLE_RATE], SPEECH[: SAMPLE_RATE // 2]]))
    assert all(len(one.tokens) <= 4 * one.seconds for one in transcripts)


def test_moonshine_is_trained_saved_loaded_and_evaluated(tmp_path):
    manifest = write_corpus(tmp_path / "data", 6)
    recognizer = make_moonshine(decoding={"beam_size": 1, "max_length": 13, "ctc_weight": 0.0})
    before = recognizer.model.decoder.embedding.numpy()
    (history,) = recognizer.fit(manifest, output=tmp_path / "run", quiet=True)
    assert history.steps > 0
    assert np.abs(recognizer.model.decoder.embedding.numpy() - before).max() > 1e-4
    recognizer.save(tmp_path / "model")
    again = SpeechRecognizer.from_preset(tmp_path / "model")
    assert replace(again.config, training=recognizer.config.training) == recognizer.config
    evaluation = again.evaluate(manifest, quiet=True)
    assert evaluation.texts == recognizer.evaluate(manifest, quiet=True).texts


def test_moonshine_without_a_vocabulary_says_where_to_get_one(tmp_path):
    recognizer = SpeechRecognizer(make_moonshine().config)
    with pytest.raises(ValueError, match="needs their vocabulary: start with `from_preset`"):
        recognizer.fit(write_corpus(tmp_path, 3), quiet=True)


@pytest.mark.slow
def test_an_export_of_moonshine_answers_like_the_recognizer(moonshine, tmp_path):
    folder = moonshine.export(tmp_path / "recognizer")
    broken = [b"", wav_bytes(np.zeros(9_999, np.float32)), FILES[0][:40]]
    calls = [("serving_default", {"audio_bytes": FILES}), ("serving_default", {"audio_bytes": [*broken, FILES[1]]})]
    together, mixed = call_in_fresh_process(folder, [*calls, ("serving_default", {"audio_bytes": broken})], tmp_path)[
        :2
    ]
    transcripts = moonshine.transcribe(FILES)
    for row, transcript in enumerate(transcripts):
        (part,) = transcript.parts
        assert [text.decode() for text in together["text"][row]] == [text for text, _ in part.alternatives]
        assert [token.decode(errors="replace") for token in together["tokens"][row] if token] == part.tokens
        assert together["confidence"][row] == pytest.approx(transcript.confidence, abs=1e-3)
        names = ("words", "start", "end", "word_confidence")
        check_words({name: together[name][row] for name in names}, part.words)
    assert mixed["status"].tolist() == [b"undecodable audio", b"silent", b"undecodable audio", b"ok"]
    assert mixed["text"][-1].tolist() == together["text"][1].tolist()


# Export


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A recognizer that tells recordings apart and is sure of half of its texts, and the folder of its export."""
    recognizer = make_recognizer(decoder=SMALL_DECODER, confidence={"slope": 1.5, "offset": 0.5, "threshold": 0.5})
    for weight in recognizer.model.trainable_weights:
        weight.assign(2.5 * weight)
    config = recognizer.config
    recognizer.config = replace(config, decoding=replace(config.decoding, min_length=5))
    sure = float(np.median([transcript.confidence for transcript in recognizer.transcribe(FILES)]))
    recognizer.config = replace(recognizer.config, output=replace(config.output, min_confidence=sure))
    return recognizer, recognizer.export(tmp_path_factory.mktemp("export") / "recognizer")


WAVEFORMS = [say(text, seed=seed) for seed, text in enumerate(["A B C A B C", "AB C", "BCBC ABAC", "CCA", "B", "C A"])]
FILES = [wav_bytes(waveform, subtype="PCM_16") for waveform in WAVEFORMS]


def check_like_live(outputs, transcripts, recognizer):
    """Compares the outputs of an export with transcripts of one piece each."""
    for row, transcript in enumerate(transcripts):
        (part,) = transcript.parts
        is_sure = part.confidence >= recognizer.config.output.min_confidence
        assert outputs["status"][row] == (b"ok" if is_sure else b"unclear")
        assert [text.decode() for text in outputs["text"][row]] == [text for text, _ in part.alternatives]
        scores = [score for _, score in part.alternatives]
        np.testing.assert_allclose(outputs["score"][row], scores, rtol=1e-3, atol=1e-3)
        assert outputs["confidence"][row] == pytest.approx(transcript.confidence, abs=1e-3)
        assert outputs["unsure"][row] == transcript.unsure
        count, width = len(part.tokens), part.attention.shape[1]
        assert [token.decode() for token in outputs["tokens"][row] if token] == part.tokens
        assert outputs["token_ids"][row, :count].tolist() == recognizer.vocabulary.encode(part.tokens)
        np.testing.assert_allclose(outputs["attention"][row, :count, :width], part.attention, atol=1e-3)
        assert not outputs["attention"][row, count:].any()
        check_words({name: outputs[name][row] for name in ("words", "start", "end", "word_confidence")}, part.words)


def check_words(outputs, words):
    count = len(words)
    assert [word.decode() for word in outputs["words"] if word] == [word.word for word in words]
    np.testing.assert_allclose(outputs["start"][:count], [word.start for word in words], atol=1e-6)
    np.testing.assert_allclose(outputs["end"][:count], [word.end for word in words], atol=1e-6)
    np.testing.assert_allclose(outputs["word_confidence"][:count], [word.confidence for word in words], atol=1e-3)


@pytest.mark.slow
def test_an_export_answers_like_the_recognizer_where_this_package_cannot_be_imported(exported, tmp_path):
    recognizer, folder = exported
    size = max(map(len, WAVEFORMS))
    padded = [np.pad(one, (0, size - len(one)), constant_values=np.nan) for one in WAVEFORMS]
    calls = [
        ("serving_default", {"audio_bytes": FILES}),
        ("serving_default", {"audio_bytes": [b"", FILES[1], wav_bytes(np.zeros(9_999, np.float32)), FILES[0][:40]]}),
        ("waveform", {"waveform": padded, "length": [len(one) for one in WAVEFORMS]}),
    ]
    together, mixed, waveforms = call_in_fresh_process(folder, calls, tmp_path)
    transcripts = recognizer.transcribe(FILES)
    texts = [transcript.text for transcript in transcripts]
    assert len(set(texts)) > 2
    assert "" in texts
    check_like_live(together, transcripts, recognizer)
    check_like_live(waveforms, recognizer.transcribe(pairs(WAVEFORMS)), recognizer)
    expected = [b"undecodable audio", together["status"][1], b"silent", b"undecodable audio"]
    assert mixed["status"].tolist() == expected
    check_like_live({name: array[1:2] for name, array in mixed.items()}, transcripts[1:2], recognizer)


@pytest.mark.slow
def test_an_export_answers_whatever_is_changed_in_a_file(exported):
    _, folder = exported
    random, files, model = np.random.default_rng(0), [], LoadedModel(folder)
    for _ in range(60):
        contents = bytearray(FILES[1])
        for _ in range(random.integers(1, 6)):
            contents[random.integers(48)] = random.integers(256)
        files.append(bytes(contents[: random.integers(len(contents))]))
    whole = model.predict({"audio_bytes": FILES[1:2]})
    outputs = model.predict({"audio_bytes": [*files, FILES[1]]})
    assert outputs["text"][-1].tolist() == whole["text"][0].tolist()
    assert {b"undecodable audio", b"unsupported audio format"} <= set(outputs["status"].tolist())
    for name, array in outputs.items():
        if array.dtype == np.float32:
            assert not np.isnan(array).any()
            assert name == "score" or np.isfinite(array).all()
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "at most 4 seconds" in card
    assert "## Signature `waveform`" in card
