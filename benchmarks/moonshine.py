"""Speed of `moonshine_tiny_english` next to onnxruntime with the files of its authors, greedy, one recording at a time.

    npm pack @moonshine-ai/moonshine-js@0.1.29 && tar xzf moonshine-ai-moonshine-js-0.1.29.tgz
    python benchmarks/moonshine.py --onnx package/dist/model/tiny/quantized [--recordings FILE...]
                                   [--repeats 20] [--threads 1] [--json]

Needs `pip install onnxruntime`. The recordings of the demonstration by default. onnxruntime also quantizes activations,
so a few texts differ. Recordings with different texts are not timed, and if they are more than a quarter, nothing is.
For each recording the three take turns. `live` and `export` also compute the times and confidences of words. The
table has totals over all recordings. On a busy machine trust the ratio of the CPU times.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from presets import load, set_threads
from timing import Timing, interleave

PRESET = "moonshine_tiny_english"
PEER = "onnxruntime"
SAMPLE_RATE = 16_000
START, END = 1, 2
MAX_DIFFERENT = 0.25


class OnnxMoonshine:
    """Greedy transcription with the two ONNX files, an encoder and a decoder with a cache.

    Args:
        folder: of encoder_model.onnx and decoder_model_merged.onnx.
        tokens_per_second: the largest number of tokens for a second, as in our preset.
    """

    def __init__(self, folder: Path, threads: int, tokens_per_second: float):
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = settings.inter_op_num_threads = threads
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(str(folder / name), settings, providers=["CPUExecutionProvider"])
            for name in ("encoder_model.onnx", "decoder_model_merged.onnx")
        )
        self.tokens_per_second = tokens_per_second
        self.outputs = [output.name for output in self.decoder.get_outputs()]
        self.empty = {
            entry.name: np.zeros((1, entry.shape[1], 0, entry.shape[3]), "float32")
            for entry in self.decoder.get_inputs()
            if entry.name.startswith("past_key_values")
        }

    def transcribe(self, waveform: np.ndarray) -> list[int]:
        """Return the token ids of a recording, without start and end."""
        (values,) = self.encoder.run(None, {"input_values": waveform[np.newaxis]})
        limit = int(len(waveform) / SAMPLE_RATE * self.tokens_per_second)
        past, tokens = self.empty, [START]
        while tokens[-1] != END and len(tokens) <= limit:
            is_first = len(tokens) == 1
            inputs = {"input_ids": np.array([tokens[-1:]]), "encoder_hidden_states": values, **past}
            inputs["use_cache_branch"] = np.array([not is_first])
            outputs = dict(zip(self.outputs, self.decoder.run(None, inputs), strict=True))
            tokens.append(int(outputs.pop("logits")[0, -1].argmax()))
            present = {name.replace("present", "past_key_values"): array for name, array in outputs.items()}
            # Keys and values of the recording are computed in the first step only.
            past = {name: array if is_first or ".decoder." in name else past[name] for name, array in present.items()}
        return [token for token in tokens if token not in (START, END)]


def to_text(pieces: list[str]) -> str:
    """Joins sub-words; bytes outside of ASCII are not in English texts."""
    return "".join(pieces).replace("\u2581", " ").strip()


def make_contenders(onnx: Path, threads: int) -> dict[str, Callable[[np.ndarray], str]]:
    """Functions from a waveform to a text: onnxruntime, the live preset and its export."""
    from attention_apps.serving import LoadedModel

    recognizer = load(PRESET)
    # No text is withheld, as there is none in onnxruntime's.
    options = {"beam_size": 1, "min_length": 1, "min_confidence": 0.0}
    peer = OnnxMoonshine(onnx, threads, recognizer.config.moonshine.tokens_per_second)
    with tempfile.TemporaryDirectory() as folder:
        export = LoadedModel(recognizer.export(Path(folder) / "model", **options))

    def ask_export(waveform: np.ndarray) -> str:
        inputs = {"waveform": waveform[np.newaxis], "length": [len(waveform)]}
        return export.predict(inputs, "waveform")["text"].flat[0].decode()

    return {
        PEER: lambda waveform: to_text(recognizer.vocabulary.decode(peer.transcribe(waveform))),
        "live": lambda waveform: recognizer.transcribe((waveform, SAMPLE_RATE), quiet=True, **options).text,
        "export": ask_export,
    }


def measure(
    contenders: dict[str, Callable[[np.ndarray], str]], waveforms: list[np.ndarray], repeats: int
) -> dict[str, dict[str, Any]]:
    """Times the contenders on the recordings of which they write the same text."""
    same = []
    for waveform in waveforms:
        texts = {name: " ".join(ask(waveform).split()) for name, ask in contenders.items()}
        if len(set(texts.values())) == 1:
            same.append(waveform)
        else:
            print("different texts:", json.dumps(texts), file=sys.stderr)
    if len(same) < (1 - MAX_DIFFERENT) * len(waveforms):
        sys.exit(f"{len(waveforms) - len(same)} of {len(waveforms)} texts differ: nothing was timed")
    timings = []
    for waveform in same:
        calls = {name: (lambda ask=ask, waveform=waveform: ask(waveform)) for name, ask in contenders.items()}
        timings.append(interleave(calls, repeats))
    seconds = sum(map(len, same)) / SAMPLE_RATE
    return {"recordings": {"timed": len(same), "of": len(waveforms), "seconds": seconds}, **summarize(timings, seconds)}


def summarize(timings: list[dict[str, Timing]], seconds: float) -> dict[str, dict[str, float]]:
    """Totals over the recordings: how many times faster than real time, and the speed relative to onnxruntime's."""
    names = list(timings[0])
    wall = {name: sum(timing[name].median for timing in timings) for name in names}
    cpu = {name: sum(timing[name].cpu_seconds_per_run for timing in timings) for name in names}
    return {
        name: {
            "times real time": seconds / wall[name],
            "speed / onnxruntime": wall[PEER] / wall[name],
            "by CPU": cpu[PEER] / cpu[name],
        }
        for name in names
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onnx", type=Path, required=True, metavar="FOLDER", help="folder of the two ONNX files")
    parser.add_argument("--recordings", nargs="+", type=Path, metavar="FILE", help="recordings of up to 30 s")
    parser.add_argument("--repeats", type=int, default=20, help="timed rounds for each recording")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    set_threads(options.threads)
    from attention_apps.cli.demo_content import sample_recordings
    from attention_apps.preprocessing import read_audio

    waveforms = [read_audio(path) for path in options.recordings or sample_recordings()]
    figures = measure(make_contenders(options.onnx, options.threads), waveforms, options.repeats)
    if options.json:
        print(json.dumps(figures))
        return
    recordings = figures.pop("recordings")
    print(f"{recordings['timed']} of {recordings['of']} recordings, {recordings['seconds']:.1f} s")
    columns = next(iter(figures.values()))
    print(" " * len(PEER), *columns, sep="  ")
    for name, values in figures.items():
        cells = (f"{values[column]:{len(column)}.2f}" for column in columns)
        print(f"{name:{len(PEER)}}", *cells, sep="  ")


if __name__ == "__main__":
    main()
