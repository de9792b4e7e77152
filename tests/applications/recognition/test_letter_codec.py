"""Letters, their positions and their confidences."""

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.applications.recognition.config import SpeechDecodingOptions
from attention_apps.applications.recognition.letter_codec import LetterCodec
from attention_apps.preprocessing.vocabulary import Vocabulary
from tests.applications.recognizers import LETTERS, make_config

A, B, SPACE = 4, 5, 7


@pytest.fixture
def codec():
    return LetterCodec(make_config(), Vocabulary(LETTERS))


def test_letters_are_written_as_the_configuration_says(codec):
    assert codec.letters("A, b!") == ["A", " ", "B"]
    assert codec.encode("A, b!") == [A, SPACE, B]
    kept = LetterCodec(make_config(case="lower", punctuation=True), Vocabulary(LETTERS))
    assert kept.letters("A, b!") == ["a", ",", " ", "b", "!"]


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
