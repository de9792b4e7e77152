"""Recognition is timed next to onnxruntime on recordings of which both write the same text."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
WAVEFORMS = [np.zeros(16_000 * seconds, "float32") for seconds in (1, 2, 3, 4)]


@pytest.fixture
def moonshine(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("moonshine")


def test_recordings_with_different_texts_are_not_timed(moonshine, capsys):
    def say(waveform):
        return str(len(waveform))

    contenders = {"onnxruntime": say, "live": lambda waveform: say(waveform).replace("48000", "x"), "export": say}
    figures = moonshine.measure(contenders, WAVEFORMS, repeats=2)
    assert figures["recordings"] == {"timed": 3, "of": 4, "seconds": 7.0}
    assert figures["onnxruntime"]["speed / onnxruntime"] == 1
    assert figures["live"]["times real time"] > 0
    assert '"live": "x"' in capsys.readouterr().err
    contenders["export"] = lambda waveform: "y"
    with pytest.raises(SystemExit, match="4 of 4 texts differ"):
        moonshine.measure(contenders, WAVEFORMS, repeats=2)


def test_speeds_are_relative_to_onnxruntime(moonshine):
    timing = moonshine.Timing
    timings = [
        {"onnxruntime": timing((0.1,), 0.1), "live": timing((0.2,), 0.1)},
        {"onnxruntime": timing((0.3,), 0.3), "live": timing((0.3,), 0.4)},
    ]
    figures = moonshine.summarize(timings, seconds=8.0)
    assert figures["live"] == pytest.approx({"times real time": 16, "speed / onnxruntime": 0.8, "by CPU": 0.8})


def test_the_decoder_is_run_with_its_own_cache_until_the_end(moonshine):
    seen = []

    def decode(outputs, inputs):
        past = inputs["past_key_values.0.decoder.key"].shape[2], inputs["past_key_values.0.encoder.key"].shape[2]
        seen.append((int(inputs["input_ids"][0, 0]), bool(inputs["use_cache_branch"][0]), past))
        length = 5 if len(seen) == 1 else 0  # only the first step computes what depends on the recording
        logits = np.eye(10)[(1, 7, 2)[len(seen)] if len(seen) < 3 else 2]
        return [logits[None, None], np.zeros((1, 2, len(seen), 3)), np.zeros((1, 2, length, 3))]

    names = ["logits", "present.0.decoder.key", "present.0.encoder.key"]
    peer = object.__new__(moonshine.OnnxMoonshine)
    peer.encoder = SimpleNamespace(run=lambda outputs, inputs: [np.zeros((1, 5, 4))])
    peer.decoder, peer.outputs, peer.tokens_per_second = SimpleNamespace(run=decode), names, 6.5
    peer.empty = {name.replace("present", "past_key_values"): np.zeros((1, 2, 0, 3)) for name in names[1:]}
    assert peer.transcribe(WAVEFORMS[0]) == [7]
    assert seen == [(1, False, (0, 0)), (7, True, (1, 5))]


def test_sub_words_are_joined(moonshine):
    assert moonshine.to_text(["\u2581Go", "\u2581on", "."]) == "Go on."
