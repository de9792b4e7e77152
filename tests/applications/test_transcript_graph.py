"""The graph of a recognizer's export next to the recognizer itself; see also `test_exported_recognizer`."""

from dataclasses import replace

import numpy as np
import pytest
import soxr
import tensorflow as tf

from attention_apps.applications.transcript_graph import TranscriptGraph
from attention_apps.preprocessing.audio import SAMPLE_RATE
from tests.applications.recognizers import make_recognizer, say, wav_bytes
from tests.applications.transcripts import check_like_live

# Quick to trace.
SMALL_DECODER = {"embedding_dim": 6, "units": 14, "attend": "after", "attention": {"kind": "luong"}}
TEXTS = ["A B C A B C", "AB C", "BCBC ABAC", "CCA", "B", "C A"]
WAVEFORMS = [say(text, seed=seed) for seed, text in enumerate(TEXTS)]
FILES = [wav_bytes(waveform, subtype="PCM_16") for waveform in WAVEFORMS]
BAD = {
    b"": "undecodable audio",
    FILES[0][:30]: "undecodable audio",
    b"RIFX" + FILES[0][4:]: "unsupported audio format",
    wav_bytes(WAVEFORMS[0], file_format="FLAC"): "unsupported audio format",
    wav_bytes(np.full(9_999, np.nan, np.float32), subtype="FLOAT"): "undecodable audio",
    wav_bytes(np.tile(WAVEFORMS[0], 2)): "audio too long",
}
EMPTY = {
    wav_bytes(WAVEFORMS[0][4_000:5_000]): "audio too short",
    wav_bytes(np.zeros(0, np.float32)): "audio too short",
    wav_bytes(np.zeros(9_999, np.float32)): "silent",
}


@pytest.fixture(scope="module")
def recognizer():
    """One that tells recordings apart, and is sure of half of what it says."""
    recognizer = make_recognizer(decoder=SMALL_DECODER)
    for weight in recognizer.model.trainable_weights:
        weight.assign(2.5 * weight)
    options = replace(recognizer.config.decoding, min_length=5)
    sure = np.median([one.parts[0].confidence for one in recognizer.transcribe(FILES, options)])
    recognizer.config = replace(recognizer.config, decoding=replace(options, min_confidence=float(sure)))
    return recognizer


@pytest.fixture(scope="module")
def answer(recognizer):
    """The graph's answers to files, as arrays."""
    graph = TranscriptGraph(recognizer, recognizer.config.decoding)
    function = graph.signatures()["serving_default"].trace()
    return lambda files: {name: array.numpy() for name, array in function(audio_bytes=tf.constant(files)).items()}


def test_files_are_transcribed_as_by_the_recognizer(recognizer, answer):
    transcripts = recognizer.transcribe(FILES)
    check_like_live(answer(FILES), transcripts, recognizer)
    texts = [transcript.text for transcript in transcripts]
    assert len(set(texts)) > 2
    assert "" in texts
    assert max(len(transcript.words) for transcript in transcripts) > 1


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
def test_other_bit_depths_and_channels_are_read_alike(recognizer, answer, subtype):
    files = [wav_bytes(np.stack([one, one / 2], axis=1), subtype=subtype) for one in WAVEFORMS[1:4]]
    check_like_live(answer(files), recognizer.transcribe(files), recognizer)


def test_other_rates_give_about_the_same_scores(recognizer, answer):
    """The features differ by a hundredth on average: soxr is another in the last tenth of the band."""
    rates = (22_050, 44_100, 48_000)
    files = [wav_bytes(soxr.resample(WAVEFORMS[1], SAMPLE_RATE, rate), rate) for rate in rates]
    scores = [transcript.score for transcript in recognizer.transcribe(files)]
    np.testing.assert_allclose(answer(files)["score"][:, 0], scores, rtol=0.03)


def test_bad_files_get_their_status_and_leave_the_others_as_they_are(recognizer, answer):
    mixed = [file for pair in zip([*BAD, *EMPTY], FILES * 2, strict=False) for file in pair]
    outputs = answer(mixed)
    good = [row for row, file in enumerate(mixed) if file in FILES]
    transcripts = recognizer.transcribe([mixed[row] for row in good])
    check_like_live({name: array[good] for name, array in outputs.items()}, transcripts, recognizer)
    statuses = {**BAD, **EMPTY}
    for row in set(range(len(mixed))) - set(good):
        assert outputs["status"][row].decode() == statuses[mixed[row]]
        assert not any(outputs["text"][row])
        assert not any(outputs["tokens"][row])
        assert not any(outputs["words"][row])
        for name in ("token_ids", "attention", "start", "end", "word_confidence"):
            assert not outputs[name][row].any()
        best = 0 if mixed[row] in EMPTY else tf.float32.min
        assert outputs["score"][row].tolist() == [best, tf.float32.min]


def test_all_may_be_bad(answer):
    outputs = answer([*BAD])
    assert [status.decode() for status in outputs["status"]] == [*BAD.values()]
    assert outputs["words"].shape == (len(BAD), 0)
