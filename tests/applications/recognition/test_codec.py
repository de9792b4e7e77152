"""Transcripts from made-up outputs of a model; `test_recognizer` has those of a real one."""

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.applications.parts import Reading, Source
from attention_apps.applications.recognition.config import TranscriptOptions
from attention_apps.applications.recognition.letter_codec import LetterCodec
from attention_apps.preprocessing.vocabulary import Vocabulary
from tests.applications.recognizers import LETTERS, make_config

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
    failed = codec.failed("a.wav", "broken")
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
