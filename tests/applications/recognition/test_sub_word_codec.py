"""Sub-words, and recordings in which there are none."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.applications.recognition.config import SpeechDecodingOptions
from attention_apps.applications.recognition.sub_word_codec import SubWordCodec
from attention_apps.constants import END
from attention_apps.decoding import DecodingResult
from attention_apps.models.moonshine_encoder import MIN_SAMPLES
from attention_apps.preprocessing.audio import SAMPLE_RATE
from tests.applications.recognizers import make_moonshine

A, B, AB, C, COMMA, SPACE, BYTE_1, BYTE_2, UNUSED, THE = range(4, 14)


@pytest.fixture(scope="module")
def codec():
    return make_moonshine(moonshine={"silence_threshold": 0.9}).codec


def test_texts_are_sub_words_and_back(codec):
    assert codec.encode("ac  b,") == [A, C, B, COMMA]
    token_ids = tf.constant([[[THE, SPACE, B, C, COMMA, END, 0], [BYTE_1, BYTE_2, UNUSED, SPACE, END, 0, 0]]])
    assert [text.decode() for text in codec.texts(token_ids, {}).numpy()[0]] == ["the bc,", "é"]


@pytest.mark.parametrize("option", ["ctc_weight", "language_model_weight"])
def test_scorers_of_letters_are_refused(codec, option):
    options = SpeechDecodingOptions(**{"ctc_weight": 0.0, option: 0.2})
    with pytest.raises(ValueError, match=f"`{option}` must be 0 for a recognizer of sub-words.*=0.2"):
        codec.search_options(options)


def test_a_language_model_of_sub_words_is_refused(codec):
    with pytest.raises(ValueError, match="recognizers that write letters"):
        codec.fit_language_model(["a b"], order=2)


def test_short_recordings_are_padded_and_loud_ones_scaled_down(codec):
    waveform = np.float32([[0.5, -8.0, 2.0, np.nan], [0.5, 0.2, 0.1, 0.1]])
    prepared = codec.prepare({"waveform": tf.constant(waveform), "length": tf.constant([3, 0])})
    assert prepared["waveform"].shape == (2, MIN_SAMPLES)
    np.testing.assert_allclose(prepared["waveform"][0, :5], [0.0625, -1, 0.25, 0, 0])
    assert not prepared["waveform"][1].numpy().any()
    assert prepared["lengths"].numpy().tolist() == [MIN_SAMPLES, 0]


# From the outputs of a model

SAMPLES = 8000


def outputs_of(codec, tokens, silence, end=0.8):
    """What is said of half a second for which these tokens were written, of two hypotheses the first."""
    size, count = len(codec.vocabulary), len(tokens)
    logits = np.full((1, count, size), -30.0, np.float32)
    logits[0, np.arange(count), tokens] = np.log(0.8)
    logits[0, :, 3] = np.log(0.2)
    logits[0, -1, [END, 3]] = np.log([end, 1 - end])
    logits[0, 0, [tokens[0], END, 3]] = np.log([(1 - silence) * 0.8, silence, (1 - silence) * 0.2])
    source = {"waveform": tf.random.stateless_normal([1, SAMPLES], [1, 2]), "length": tf.constant([SAMPLES])}
    ids = tf.constant([[[*tokens], [THE, *[END] * (count - 1)]]])
    none = tf.zeros([1, 2])
    outputs = codec.outputs(
        {**source, **codec.prepare(source)},
        {"values": none, "mask": tf.ones([1, 7], tf.bool)},
        DecodingResult(ids, tf.constant([[-1.0, -2.0]]), none, none, none),
        {"token_ids": ids[:, 0], "logits": tf.constant(logits), "attention": tf.eye(count, 7)[tf.newaxis]},
    )
    return {name: tensor.numpy()[0] for name, tensor in outputs.items()}


def test_words_are_made_of_sub_words_and_their_confidences(codec):
    outputs = outputs_of(codec, [B, C, COMMA, THE, SPACE, BYTE_1, END], silence=1e-6)
    assert outputs["text"].tolist() == [b"bc, the \xef\xbf\xbd", b"the"]
    assert outputs["words"].tolist() == [b"bc,", b"the", b"\xef\xbf\xbd"]
    assert outputs["tokens"].tolist() == [b" b", b"c", b",", b" the", b" ", b"\xc3", b""]
    np.testing.assert_allclose(outputs["word_confidence"], 0.8, rtol=1e-4)
    np.testing.assert_allclose(outputs["confidence"], 0.8, rtol=1e-4)
    doubted = outputs_of(codec, [B, C, END], silence=1e-6, end=0.1)
    np.testing.assert_allclose(doubted["word_confidence"], 0.8, rtol=1e-4)
    np.testing.assert_allclose(doubted["confidence"], (0.8 * 0.8 * 0.1) ** (1 / 3), rtol=1e-4)
    assert (np.diff(outputs["start"]) >= 0).all()
    assert (outputs["num_positions"], outputs["attention"].shape) == (7, (7, 7))


def test_a_recording_without_speech_has_an_empty_text(codec):
    heard = outputs_of(codec, [B, C, END], silence=0.89)
    assert heard["text"].tolist() == [b"bc", b"the"]
    silent = outputs_of(codec, [B, C, END], silence=0.91)
    assert silent["text"].tolist() == [b"", b"the"]
    np.testing.assert_allclose(silent["score"], [np.log(0.91), -2], rtol=1e-5)
    assert (silent["confidence"], silent["unsure"]) == (0, False)
    for name in ("tokens", "words", "start", "end", "token_ids", "attention"):
        assert not silent[name].any(), name


def test_an_empty_text_is_not_unsure_but_a_text_of_low_confidence_is(codec):
    confidence = dataclasses.replace(codec.config.confidence, threshold=0.9)
    strict = SubWordCodec(dataclasses.replace(codec.config, confidence=confidence), codec.vocabulary)
    assert outputs_of(strict, [B, C, END], silence=1e-6)["unsure"]
    assert not outputs_of(strict, [B, C, END], silence=0.95)["unsure"]


def test_a_position_is_24_ms(codec):
    assert codec.frame_seconds == 384 / SAMPLE_RATE
