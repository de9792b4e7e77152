"""How many inputs a preset answers per second, and for recordings how many seconds of them.

    python benchmarks/throughput.py PRESET INPUT... [--batch-size 32] [--count 128] [--repeats 5] [--threads 2] [--json]

Inputs are files: photos of a captioner, recordings of a recognizer, texts of a summarizer, one text per line. They are
repeated until there are `--count` of them. Reading and decoding of files is part of what is timed.
"""

import argparse
import json
from itertools import cycle, islice
from pathlib import Path

from presets import VERBS, find_verb, load, set_threads, verb_of
from timing import interleave


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", help="name of a preset, or the folder of a trained application")
    parser.add_argument("inputs", nargs="+", type=Path, help="files")
    parser.add_argument("--batch-size", type=int, default=32, help="inputs that are handed over at once")
    parser.add_argument("--count", type=int, default=128, help="inputs of one timing")
    parser.add_argument("--repeats", type=int, default=5, help="timings, of which the median counts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    set_threads(options.threads)
    figures = measure(options)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:28} {value:10.4g}")


def measure(options: argparse.Namespace) -> dict[str, float]:
    application = load(options.preset)
    answer, kind = verb_of(application), VERBS[find_verb(application)]
    inputs = list(islice(cycle(read_items(kind, options.inputs)), options.count))
    batches = [inputs[first : first + options.batch_size] for first in range(0, len(inputs), options.batch_size)]
    timing = interleave({"all": lambda: [answer(batch) for batch in batches]}, options.repeats, warmup=1)["all"]
    figures = {
        "inputs": len(inputs),
        "batch size": options.batch_size,
        "beam size": application.config.decoding.beam_size,
        "threads": options.threads,
        "seconds of an input": timing.median / len(inputs),
        "inputs a second": len(inputs) / timing.median,
        "CPU seconds of an input": timing.cpu_seconds_per_run / len(inputs),
    }
    if kind == "recordings":
        seconds = sum(transcript.seconds for transcript in answer(inputs))
        figures["times as fast as speech"] = seconds / timing.median
    return figures


def read_items(kind: str, paths: list[Path]) -> list[str]:
    """What the application is called with: paths, or the lines of texts."""
    if kind != "texts":
        return [str(path) for path in paths]
    return [line for path in paths for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


if __name__ == "__main__":
    main()
