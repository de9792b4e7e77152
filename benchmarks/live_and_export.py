"""How long the live application and its export take for the same input, one input at a time.

    python benchmarks/live_and_export.py [PRESET...] [--photos FILE...] [--recordings FILE...] [--texts FILE...]
                                         [--repeats 50] [--threads 1] [--json]

All presets and made-up inputs by default. Recordings must be WAV files, which is what an export reads. For each input
the two take turns. The table has the medians over the inputs. On a busy machine trust the ratio of the CPU times.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from presets import PRESETS, VERBS, add_input_arguments, find_verb, load, read_inputs, set_threads, verb_of
from timing import Timing, interleave

# Heading and format of each column.
COLUMNS = {
    "inputs": "d",
    "live ms": ".1f",
    "export ms": ".1f",
    "export / live": ".2f",
    "live CPU ms": ".1f",
    "export CPU ms": ".1f",
    "by CPU": ".2f",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=PRESETS, metavar="PRESET", help="names or folders")
    add_input_arguments(parser)
    parser.add_argument("--repeats", type=int, default=50, help="timed pairs for each input")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    set_threads(options.threads)
    figures = {}
    for preset in options.presets:
        application = load(preset)
        kind = VERBS[find_verb(application)]
        figures[preset] = measure(application, read_inputs(kind, getattr(options, kind)), options.repeats)
    if options.json:
        print(json.dumps(figures))
    else:
        print_table(figures)


def measure(application: Any, inputs: list[bytes], repeats: int) -> dict[str, float]:
    """Time an application next to its export, after comparing what they say."""
    from attention_apps.serving import LoadedModel

    with tempfile.TemporaryDirectory() as folder:
        model = LoadedModel(application.export(Path(folder) / "model"))
    (name,) = model.inputs["serving_default"]
    answer = verb_of(application)
    ours = [result.text for result in answer(inputs)]
    theirs = [model.predict({name: [item]})["text"].flat[0].decode() for item in inputs]
    if ours != theirs:
        sys.exit(f"The export differs from the application: {theirs} instead of {ours}")
    pairs = []
    for item in inputs:
        calls = {
            "live": lambda item=item: answer(item),
            "export": lambda item=item: model.predict({name: [item]}),
        }
        pairs.append(interleave(calls, repeats))
    return summarize(pairs)


def summarize(pairs: list[dict[str, Timing]]) -> dict[str, float]:
    """Return the medians over the inputs, in milliseconds, and of the ratios of each pair."""
    wall = [(pair["live"].median, pair["export"].median) for pair in pairs]
    cpu = [(pair["live"].cpu_seconds_per_run, pair["export"].cpu_seconds_per_run) for pair in pairs]
    return {
        "inputs": len(pairs),
        "live ms": 1e3 * statistics.median(live for live, _ in wall),
        "export ms": 1e3 * statistics.median(export for _, export in wall),
        "export / live": statistics.median(export / live for live, export in wall),
        "live CPU ms": 1e3 * statistics.median(live for live, _ in cpu),
        "export CPU ms": 1e3 * statistics.median(export for _, export in cpu),
        "by CPU": statistics.median(export / live for live, export in cpu),
    }


def print_table(figures: dict[str, dict[str, float]]) -> None:
    width = max(map(len, figures))
    print(" " * width, *COLUMNS, sep="  ")
    for preset, values in figures.items():
        cells = (f"{values[column]:{len(column)}{form}}" for column, form in COLUMNS.items())
        print(f"{preset:{width}}", *cells, sep="  ")


if __name__ == "__main__":
    main()
