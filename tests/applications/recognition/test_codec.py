"""Transcripts from made-up outputs of a model; `test_recognizer` has those of a real one."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.applications.parts import Reading, Source
from attention_apps.applications.recognition.codec import LetterCodec, SubWordCodec
from attention_apps.applications.recognition.config import SpeechDecodingOptions, TranscriptOptions
from attention_apps.constants import END
from attention_apps.decoding import DecodingResult
from attention_apps.models.moonshine_encoder import MIN_SAMPLES
from attention_apps.preprocessing.audio import SAMPLE_RATE
from attention_apps.preprocessing.vocabulary import Vocabulary
from tests.applications.recognizers import LETTERS, make_config, make_moonshine

BELIEVE_ALL, BELIEVE_HALF = TranscriptOptions(min_confidence=0.0), TranscriptOptions(min_confidence=0.5)


@pytest.fixture
def codec():
    return LetterCodec(make_config(confidence={"threshold": 0.6}), Vocabulary(LETTERS))


def outputs_of(confidence=0.7):
    """What the pipeline says of 0.3 seconds in which "A B" is heard."""
    return {
        "text": np.array([b"A B", b"A"], object),
        "score": np.float32([-1, -2]),
        "confidence": np.float32(confidence),
        "unsure": np.bool_(confidence < 0.6),
        "tokens": np.array([b"A", b" ", b"B", b""], object),
        "attention": np.float32(np.eye(4, 9)),
        "words": np.array([b"A", b"B", b""], object),
        "start": np.float32([0.1, 0.2, 0]),
        "end": np.float32([0.15, 0.3, 0]),
        "word_confidence": np.float32([0.9, 0.55, 0]),
        "envelope": np.ones((36, 2), np.float32),
        "num_frames": np.int32(30),
        "num_positions": np.int32(8),
    }


def test_a_transcript_has_the_times_of_its_pieces_and_nothing_of_the_padding(codec):
    parts = [(Source(None, place=(2.0, 2.3)), outputs_of())]
    transcript = codec.join(Reading((), "a.wav"), parts, BELIEVE_ALL)
    assert transcript.text == "A B"
    assert transcript.tokens == ["A", " ", "B"]
    assert [word[:3] for word in transcript.words] == [("A", 2.1, 2.15), ("B", 2.2, 2.3)]
    assert transcript.alternatives == [("A B", -1.0), ("A", -2.0)]
    (part,) = transcript.parts
    assert part.envelope.shape == (30, 2)
    assert part.attention.shape == (3, 8)
    assert (transcript.confidence, transcript.unsure) == (pytest.approx(0.7), False)


def test_a_silent_piece_in_the_middle_keeps_its_place(codec):
    parts = [
        (Source(None, place=(0.0, 0.3)), outputs_of()),
        (Source(None, place=(0.3, 4.0)), None),
        (Source(None, place=(4.0, 4.3)), outputs_of(0.5)),
    ]
    transcript = codec.join(Reading((), "a.wav"), parts, BELIEVE_ALL)
    assert transcript.text == "A B A B"
    assert transcript.alternatives == [("A B A B", -2.0), ("A A", -4.0)]
    assert [word.start for word in transcript.words] == pytest.approx([0.1, 0.2, 4.1, 4.2])
    assert transcript.attention.shape == (7, 108)
    assert (transcript.confidence, transcript.unsure) == (pytest.approx(0.6), True)


def test_a_text_below_the_least_confidence_is_withheld(codec):
    parts = [(Source(None, place=(0.0, 0.3)), outputs_of(0.4))]
    transcript = codec.join(Reading((), "a.wav"), parts, BELIEVE_HALF)
    assert (transcript.text, transcript.tokens, transcript.words) == ("", [], [])
    assert transcript.alternatives == [("", -1.0), ("A", -2.0)]
    assert (transcript.confidence, transcript.unsure) == (pytest.approx(0.4), True)


def test_a_recording_without_pieces_or_with_an_error_has_no_text(codec):
    assert codec.join(Reading((), "a.wav"), [], BELIEVE_ALL).text == ""
    failed = codec.result(error="broken", source="a.wav")
    assert (failed.source, failed.error, failed.text) == ("a.wav", "broken", "")


def test_an_export_clears_what_it_does_not_stand_behind(codec):
    rows = [outputs_of(0.7), outputs_of(0.4), *[outputs_of(0.7)] * 3]
    outputs = {name: tf.constant([row[name] for row in rows]) for name in rows[0]}
    status = tf.constant(["ok", "ok", "silent", "audio too short", "undecodable audio"])
    served = {name: array.numpy() for name, array in codec.serve(outputs, {"status": status}, BELIEVE_HALF).items()}
    assert served.keys() == codec.output_notes.keys() - {"token_ids"}
    assert served["status"].tolist()[:2] == [b"ok", b"unclear"]
    texts = [[b"A B", b"A"], [b"", b"A"], *[[b"", b""]] * 3]
    assert served["text"].tolist() == texts
    nothing = -np.inf
    assert served["score"].tolist() == [[-1, -2], [-1, -2], [0, nothing], [0, nothing], [nothing, nothing]]
    np.testing.assert_allclose(served["confidence"], [0.7, 0.4, 0, 0, 0])
    assert served["unsure"].tolist() == [False, True, False, False, False]
    for name in ("tokens", "words", "start", "end", "word_confidence", "attention"):
        assert served[name][0].any()
        assert not served[name][1:].any()


def test_an_export_calls_a_recording_without_words_unclear(codec):
    outputs = {name: tf.constant([array]) for name, array in outputs_of(0.0).items()}
    outputs["text"], outputs["unsure"] = tf.constant([["", "A"]]), tf.constant([False])
    served = codec.serve(outputs, {"status": tf.constant(["ok"])}, BELIEVE_HALF)
    served = {name: array.numpy().tolist() for name, array in served.items()}
    assert (served["status"], served["text"], served["score"]) == ([b"unclear"], [[b"", b"A"]], [[-1, -2]])
    assert (served["confidence"], served["unsure"]) == ([0], [False])


A, B, SPACE = 4, 5, 7


# Letters


def test_letters_are_written_as_the_configuration_says(codec):
    assert codec.encode("A, b!") == [A, SPACE, B]
    kept = LetterCodec(make_config(case="lower", punctuation=True), Vocabulary("a, b!"))
    assert kept.vocabulary.decode(kept.encode("A, b!")) == ["a", ",", " ", "b", "!"]


def test_a_text_has_single_spaces_between_its_words(codec):
    token_ids = tf.constant([[[SPACE, A, SPACE, SPACE, B, SPACE, 2, 0], [2, 0, 0, 0, 0, 0, 0, 0]]])
    assert codec.texts(token_ids, {}).numpy().tolist() == [[b"A B", b""]]


# Confidence

# Positions by the probabilities that CTC gives to the blank, A and B.
HEARD = np.float32([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.4, 0.4], [0.1, 0.1, 0.8]])


def align(codec, token_ids, written, attention):
    """Spans and confidences of letters that attention gives the probabilities `written`."""
    size = len(codec.vocabulary)
    ctc = np.full((1, len(HEARD), size), 1e-9, np.float32)
    ctc[0][:, [0, A, B]] = HEARD
    logits = np.full((1, len(token_ids), size), -30.0, np.float32)
    logits[0, :, 3] = np.log(np.maximum(1 - np.array(written), 1e-9))
    logits[0, np.arange(len(token_ids)), token_ids] = np.log(written)
    memory = {"ctc_logits": tf.math.log(ctc), "mask": tf.ones([1, len(HEARD)], tf.bool)}
    forced = {
        "token_ids": tf.constant([token_ids]),
        "logits": tf.constant(logits),
        "attention": tf.constant(attention[np.newaxis], tf.float32),
    }
    spans, confidences = codec.align({}, memory, forced)
    return spans[0].numpy(), confidences[0].numpy()


def test_the_confidence_of_a_letter_is_what_attention_and_ctc_agree_on(codec):
    spans, confidences = align(codec, [A, B], [0.5, 0.2], np.eye(2, 4))
    assert spans[0, 0] == 1
    assert spans[1, 1] == 4
    np.testing.assert_allclose(confidences, [np.sqrt(0.5 * 0.8), np.sqrt(0.2 * 0.8)], rtol=1e-4)


def test_more_letters_than_positions_are_where_attention_looked(codec):
    spans, _ = align(codec, [A, B, A, B, A], [0.9] * 5, np.eye(4)[[0, 1, 1, 2, 3]])
    assert spans.tolist() == [[0, 1], [1, 2], [1, 2], [2, 3], [3, 4]]


# The language model


def test_a_language_model_is_a_file_of_the_preset(codec):
    assert codec.files() == {}
    codec.fit_language_model(["abc", "cab a"] * 3, order=2)
    other = LetterCodec(codec.config, codec.vocabulary)
    other.take_files({"vocabulary.txt": "ignored", **codec.files()})
    assert other.files() == codec.files()


def test_a_weight_without_a_language_model_is_refused(codec):
    memory = {"ctc_logits": tf.zeros([2, 3, 8]), "mask": tf.ones([2, 3], tf.bool)}
    options = SpeechDecodingOptions(language_model_weight=0.5)
    with pytest.raises(ValueError, match=r"`language_model_weight` must be 0 without a language model.*=0.5"):
        codec.scorers(memory, options)
    codec.fit_language_model(["ab"], order=2)
    assert len(codec.scorers(memory, options)) == 2
    assert len(codec.scorers(memory, SpeechDecodingOptions())) == 1
    assert len(codec.scorers(memory, SpeechDecodingOptions(ctc_weight=0.0))) == 0


SUB_A, SUB_B, AB, C, COMMA, SUB_SPACE, BYTE_1, BYTE_2, UNUSED, THE = range(4, 14)


@pytest.fixture(scope="module")
def sub_word_codec():
    return make_moonshine(moonshine={"silence_threshold": 0.9}).codec


def test_texts_are_sub_words_and_back(sub_word_codec):
    assert sub_word_codec.encode("ac  b,") == [SUB_A, C, SUB_B, COMMA]
    token_ids = tf.constant(
        [[[THE, SUB_SPACE, SUB_B, C, COMMA, END, 0], [BYTE_1, BYTE_2, UNUSED, SUB_SPACE, END, 0, 0]]]
    )
    assert [text.decode() for text in sub_word_codec.texts(token_ids, {}).numpy()[0]] == ["the bc,", "é"]


@pytest.mark.parametrize("option", ["ctc_weight", "language_model_weight"])
def test_scorers_of_letters_are_refused(sub_word_codec, option):
    options = SpeechDecodingOptions(**{"ctc_weight": 0.0, option: 0.2})
    with pytest.raises(ValueError, match=f"`{option}` must be 0 for a recognizer of sub-words.*=0.2"):
        sub_word_codec.search_options(options)


def test_short_recordings_are_padded_and_loud_ones_scaled_down(sub_word_codec):
    waveform = np.float32([[0.5, -8.0, 2.0, np.nan], [0.5, 0.2, 0.1, 0.1]])
    prepared = sub_word_codec.prepare({"waveform": tf.constant(waveform), "length": tf.constant([3, 0])})
    assert prepared["waveform"].shape == (2, MIN_SAMPLES)
    np.testing.assert_allclose(prepared["waveform"][0, :5], [0.0625, -1, 0.25, 0, 0])
    assert not prepared["waveform"][1].numpy().any()
    assert prepared["lengths"].numpy().tolist() == [MIN_SAMPLES, 0]


# From the outputs of a model

SAMPLES = 8000


def sub_word_outputs(sub_word_codec, tokens, silence, end=0.8):
    """What is said of half a second for which these tokens were written, of two hypotheses the first."""
    size, count = len(sub_word_codec.vocabulary), len(tokens)
    logits = np.full((1, count, size), -30.0, np.float32)
    logits[0, np.arange(count), tokens] = np.log(0.8)
    logits[0, :, 3] = np.log(0.2)
    logits[0, -1, [END, 3]] = np.log([end, 1 - end])
    logits[0, 0, [tokens[0], END, 3]] = np.log([(1 - silence) * 0.8, silence, (1 - silence) * 0.2])
    source = {"waveform": tf.random.stateless_normal([1, SAMPLES], [1, 2]), "length": tf.constant([SAMPLES])}
    ids = tf.constant([[[*tokens], [THE, *[END] * (count - 1)]]])
    none = tf.zeros([1, 2])
    outputs = sub_word_codec.outputs(
        {**source, **sub_word_codec.prepare(source)},
        {"values": none, "mask": tf.ones([1, 7], tf.bool)},
        DecodingResult(ids, tf.constant([[-1.0, -2.0]]), none, none, none),
        {"token_ids": ids[:, 0], "logits": tf.constant(logits), "attention": tf.eye(count, 7)[tf.newaxis]},
    )
    return {name: tensor.numpy()[0] for name, tensor in outputs.items()}


def test_words_are_made_of_sub_words_and_their_confidences(sub_word_codec):
    outputs = sub_word_outputs(sub_word_codec, [SUB_B, C, COMMA, THE, SUB_SPACE, BYTE_1, END], silence=1e-6)
    assert outputs["text"].tolist() == [b"bc, the \xef\xbf\xbd", b"the"]
    assert outputs["words"].tolist() == [b"bc,", b"the", b"\xef\xbf\xbd"]
    assert outputs["tokens"].tolist() == [b" b", b"c", b",", b" the", b" ", b"\xc3", b""]
    np.testing.assert_allclose(outputs["word_confidence"], 0.8, rtol=1e-4)
    np.testing.assert_allclose(outputs["confidence"], 0.8, rtol=1e-4)
    doubted = sub_word_outputs(sub_word_codec, [SUB_B, C, END], silence=1e-6, end=0.1)
    np.testing.assert_allclose(doubted["word_confidence"], 0.8, rtol=1e-4)
    np.testing.assert_allclose(doubted["confidence"], (0.8 * 0.8 * 0.1) ** (1 / 3), rtol=1e-4)
    assert (np.diff(outputs["start"]) >= 0).all()
    assert (outputs["num_positions"], outputs["attention"].shape) == (7, (7, 7))


def test_a_recording_without_speech_has_an_empty_text(sub_word_codec):
    heard = sub_word_outputs(sub_word_codec, [SUB_B, C, END], silence=0.89)
    assert heard["text"].tolist() == [b"bc", b"the"]
    silent = sub_word_outputs(sub_word_codec, [SUB_B, C, END], silence=0.91)
    assert silent["text"].tolist() == [b"", b"the"]
    np.testing.assert_allclose(silent["score"], [np.log(0.91), -2], rtol=1e-5)
    assert (silent["confidence"], silent["unsure"]) == (0, False)
    for name in ("tokens", "words", "start", "end", "token_ids", "attention"):
        assert not silent[name].any(), name


def test_an_empty_text_is_not_unsure_but_a_text_of_low_confidence_is(sub_word_codec):
    confidence = dataclasses.replace(sub_word_codec.config.confidence, threshold=0.9)
    strict = SubWordCodec(dataclasses.replace(sub_word_codec.config, confidence=confidence), sub_word_codec.vocabulary)
    assert sub_word_outputs(strict, [SUB_B, C, END], silence=1e-6)["unsure"]
    assert not sub_word_outputs(strict, [SUB_B, C, END], silence=0.95)["unsure"]


def test_a_position_is_24_ms(sub_word_codec):
    assert sub_word_codec.frame_seconds == 384 / SAMPLE_RATE
