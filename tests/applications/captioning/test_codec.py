"""Words and captions from made-up outputs of a model; `test_captioner` has those of a real one."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.applications.captioning.codec import CaptionCodec
from attention_apps.applications.outputs import ConfidenceConfig
from attention_apps.applications.parts import OutputOptions, Reading, Source
from attention_apps.decoding import DecodingResult
from attention_apps.preprocessing.vocabulary import Vocabulary
from tests.applications.captioners import PHOTO, make_config

A, DOG, RUNS, OWN = range(4, 8)
OPTIONS = OutputOptions()


@pytest.fixture
def codec():
    config = replace(make_config(), confidence=ConfidenceConfig(threshold=0.5))
    return CaptionCodec(config, Vocabulary(["a", "dog", "runs", "'s"]))


def test_words_are_joined_as_they_are_written(codec):
    token_ids = tf.constant([[[A, DOG, RUNS, 2, 0], [A, DOG, OWN, DOG, 2]], [[2, 0, 0, 0, 0], [0, 0, 0, 0, 0]]])
    assert codec.texts(token_ids, {}).numpy().tolist() == [[b"a dog runs", b"a dog's dog"], [b"", b""]]


def make_outputs(codec):
    """Of two photos of 2 x 2 regions: "a dog", of which the model is sure, and "a", of which it is not."""
    token_ids = tf.constant([[[A, DOG, 2]], [[A, 2, 0]]])
    result = DecodingResult(token_ids, tf.constant([[-1.0], [-2.0]]), None, None, None)
    logits = np.zeros((2, 3, len(codec.vocabulary)), np.float32)
    logits[0, np.arange(3), [A, DOG, 2]] = 9.0
    attention = tf.fill([2, 3, 4], 0.25)
    forced = {"token_ids": token_ids[:, 0], "logits": tf.constant(logits), "attention": attention}
    return codec.outputs({}, {}, result, forced)


def test_outputs_have_a_row_for_each_photo_and_the_confidence_of_the_best_caption(codec):
    outputs = {name: array.numpy() for name, array in make_outputs(codec).items()}
    assert outputs["text"].tolist() == [[b"a dog"], [b"a"]]
    assert outputs["tokens"].tolist() == [[b"a", b"dog", b""], [b"a", b"", b""]]
    assert outputs["attention"].shape == (2, 3, 2, 2)
    assert outputs["attention"].sum((2, 3)).tolist() == [[1, 1, 0], [1, 0, 0]]
    assert outputs["confidence"][0] > 0.99
    assert outputs["confidence"][1] == pytest.approx(1 / len(codec.vocabulary))
    assert outputs["unsure"].tolist() == [False, True]


def test_a_caption_is_made_of_the_outputs_of_its_photo(codec):
    outputs = {name: array.numpy()[1] for name, array in make_outputs(codec).items()}
    caption = codec.join(Reading((), "photo.jpg", PHOTO), [(Source(None), outputs)], OPTIONS)
    assert (caption.text, caption.score, caption.tokens) == ("a", -2.0, ["a"])
    assert caption.alternatives == [("a", -2.0)]
    assert caption.attention.shape == (1, 2, 2)
    assert (caption.source, caption.unsure, caption.error) == ("photo.jpg", True, None)
    assert caption.pixels is PHOTO


def test_a_photo_that_fails_has_its_error_and_no_text(codec):
    failed = codec.result(error="broken", source="photo.jpg")
    assert (failed.source, failed.error, failed.text, failed.unsure) == ("photo.jpg", "broken", "", False)


def test_an_export_clears_bad_rows_and_names_all_its_outputs(codec):
    status = tf.constant(["ok", "undecodable image"])
    served = {
        name: array.numpy() for name, array in codec.serve(make_outputs(codec), {"status": status}, OPTIONS).items()
    }
    assert served.keys() == codec.output_notes.keys()
    assert served["text"].tolist() == [[b"a dog"], [b""]]
    assert served["score"].tolist() == [[-1], [-np.inf]]
    assert served["unsure"].tolist() == [False, False]
    for name in ("tokens", "token_ids", "attention", "confidence"):
        assert served[name][0].any()
        assert not served[name][1].any()
