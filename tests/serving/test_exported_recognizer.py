"""A recognizer's export says what the recognizer says, without this package."""

import numpy as np
import pytest

from attention_apps.preprocessing.audio import SAMPLE_RATE
from attention_apps.serving import LoadedModel
from tests.applications.recognizers import make_recognizer, say, wav_bytes
from tests.applications.transcripts import check_like_live
from tests.serving.fresh_process import call_in_fresh_process

pytestmark = pytest.mark.slow

WAVEFORMS = [say(text, seed=seed) for seed, text in enumerate(["A B C A", "BC", "C A B"])]
FILES = [wav_bytes(waveform, subtype="PCM_16") for waveform in WAVEFORMS]
STEREO = wav_bytes(np.stack([WAVEFORMS[0]] * 2, axis=1), subtype="PCM_24")
# The smallest of graphs; what is in the others is in `test_transcript_graph`.
DECODER = {"embedding_dim": 6, "units": 14, "attend": "after", "attention": {"kind": "luong"}}
GREEDY = {"beam_size": 1, "min_length": 7, "max_length": 9, "ctc_weight": 0.0, "min_confidence": 0.0}


@pytest.fixture(scope="module")
def recognizer():
    recognizer = make_recognizer(decoder=DECODER, decoding=GREEDY)
    for weight in recognizer.model.trainable_weights:
        weight.assign(4 * weight)
    return recognizer


@pytest.fixture(scope="module")
def folder(recognizer, tmp_path_factory):
    return recognizer.export(tmp_path_factory.mktemp("export") / "recognizer")


@pytest.fixture(scope="module")
def model(folder):
    return LoadedModel(folder)


def pad(waveforms, value=0.0):
    padded = np.full((len(waveforms), max(map(len, waveforms))), value, np.float32)
    for row, waveform in enumerate(waveforms):
        padded[row, : len(waveform)] = waveform
    return {"waveform": padded, "length": [len(waveform) for waveform in waveforms]}


def test_it_answers_as_the_recognizer_where_this_package_cannot_be_imported(recognizer, folder, tmp_path):
    calls = [("serving_default", {"audio_bytes": batch}) for batch in (FILES, FILES[:1], [b"", STEREO, FILES[0][:40]])]
    calls += [("waveform", pad(WAVEFORMS, value)) for value in (0.0, np.nan)]
    together, alone, mixed, *waveforms = call_in_fresh_process(folder, calls, tmp_path)
    transcripts = recognizer.transcribe(FILES)
    assert len({transcript.text for transcript in transcripts}) > 1
    check_like_live(together, transcripts, recognizer)
    check_like_live(alone, transcripts[:1], recognizer)
    assert mixed["status"].tolist() == [b"undecodable audio", b"ok", b"undecodable audio"]
    check_like_live({name: array[1:2] for name, array in mixed.items()}, recognizer.transcribe([STEREO]), recognizer)
    for outputs in waveforms:
        check_like_live(outputs, recognizer.transcribe(WAVEFORMS, sample_rate=SAMPLE_RATE), recognizer)


def test_where_ctc_finds_no_way_times_are_those_of_the_recognizer_too(recognizer, model):
    """Seven letters do not fit into three of its frames."""
    short = [wav_bytes(waveform[3_000:5_000]) for waveform in WAVEFORMS]
    transcripts = recognizer.transcribe(short)
    assert min(len(transcript.tokens) for transcript in transcripts) > 5
    check_like_live(model.predict({"audio_bytes": short}), transcripts, recognizer)


def test_bad_waveforms_get_their_status(recognizer, model):
    waveform = np.stack([np.tile(WAVEFORMS[0], 4)] * 6)
    waveform[1, 99] = np.nan
    waveform[4] = 0.3
    lengths = [len(WAVEFORMS[0]), 9_999, 1_599, 10**9, 9_999, -5]
    outputs = model.predict({"waveform": waveform, "length": lengths}, "waveform")
    expected = ["ok", "undecodable audio", "audio too short", "audio too long", "silent", "audio too short"]
    assert [status.decode() for status in outputs["status"]] == expected
    check_like_live(outputs, recognizer.transcribe(WAVEFORMS[:1], sample_rate=SAMPLE_RATE), recognizer)
    nothing = model.predict({"waveform": np.zeros((2, 0)), "length": [0, 3]}, "waveform")
    assert nothing["status"].tolist() == [b"audio too short"] * 2


def test_whatever_is_changed_in_a_file_it_gets_an_answer(model):
    random, files = np.random.default_rng(0), []
    for _ in range(60):
        contents = bytearray(FILES[1])
        for _ in range(random.integers(1, 6)):
            contents[random.integers(48)] = random.integers(256)
        files.append(bytes(contents[: random.integers(len(contents))]))
    whole = model.predict({"audio_bytes": FILES[1:2]})
    outputs = model.predict({"audio_bytes": [*files, FILES[1]]})
    assert outputs["text"][-1].tolist() == whole["text"][0].tolist()
    assert {b"ok", b"undecodable audio", b"unsupported audio format"} <= set(outputs["status"].tolist())
    assert all(np.isfinite(array).all() for array in outputs.values() if array.dtype == np.float32)


def test_the_card_tells_what_is_read_and_how_long_it_may_be(folder):
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "at most 4 seconds" in card
    assert "stretch of 0.04 s" in card
    assert "## Signature `waveform`" in card
