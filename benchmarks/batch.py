"""How many inputs `attention-apps batch` answers per second with 1 and 2 workers, and what large jobs would cost.

    python benchmarks/batch.py [--photos FILE...] [--recordings FILE...] [--texts FILE...] [--verbs caption ...]
        [--workers 1 2] [--count 256] [--part-size 16] [--cpus 8] [--price 0.10] [--json]

Needs `pip install 'attention_apps[ray]'`. Runs the command itself on `--count` inputs: the given files, repeated, or
made-up ones. The first part of each worker, in which it loads its model, is not timed. Hours and prices of the second
table are computed, not measured: from the rate of one worker while the most workers were running, one worker for each
CPU, as if every machine were like this one and had `--cpus` CPUs. `--price` is that of a machine for an hour.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from presets import VERBS, add_input_arguments, read_inputs

SUFFIXES = {"photos": ".jpg", "recordings": ".wav", "texts": ".txt"}
MACHINES = (10, 100)


@dataclass(frozen=True)
class Work:
    """A large job: its name, its size, and the unit of size and rate."""

    name: str
    size: float
    unit: str


WORK = {
    "caption": Work("a million photos", 1e6, "photos"),
    "transcribe": Work("1,000 h of audio", 3.6e6, "seconds of audio"),
    "summarize": Work("ten million paragraphs", 1e7, "paragraphs"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_input_arguments(parser)
    parser.add_argument("--verbs", nargs="+", choices=WORK, default=list(WORK), help="what to measure")
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--count", type=int, default=256, help="inputs of a run")
    parser.add_argument("--part-size", type=int, default=16)
    parser.add_argument("--cpus", type=int, default=os.cpu_count(), help="CPUs of a machine in the second table")
    parser.add_argument("--price", type=float, help="price of a machine for an hour")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.count < options.part_size * (max(options.workers) + 1):
        parser.error("`--count` must be large enough for a part of each worker and one more")
    rates = {verb: {workers: measure(verb, workers, options) for workers in options.workers} for verb in options.verbs}
    if options.json:
        print(json.dumps({"rates": rates, "projected": project(rates, options.cpus, options.price)}))
    else:
        print_tables(rates, options.cpus, options.price)


def measure(verb: str, workers: int, options: argparse.Namespace) -> float:
    """Run the command and return how much it does per second, in the unit of the verb."""
    kind = VERBS[verb]
    inputs = read_inputs(kind, getattr(options, kind))
    with tempfile.TemporaryDirectory() as temporary:
        folder, output = Path(temporary, "inputs"), Path(temporary, "results")
        folder.mkdir()
        suffix = next((path.suffix for path in getattr(options, kind)), SUFFIXES[kind])
        for number, contents in enumerate(islice(cycle(inputs), options.count)):
            (folder / f"{number:06d}{suffix}").write_bytes(contents)
        command = [
            sys.executable,
            "-m",
            "attention_apps",
            "batch",
            verb,
            str(folder),
            "--output",
            str(output),
            "--quiet",
        ]
        command += ["--workers", str(workers), "--part-size", str(options.part_size)]
        start = time.time()
        subprocess.run(command, check=True)
        print(f"{verb}, {workers} workers: {time.time() - start:.0f} seconds in all", file=sys.stderr, flush=True)
        return steady_rate(read_parts(output), workers)


def read_parts(output: Path) -> list[tuple[float, float]]:
    """Return when each part was finished, and its size: seconds of audio, or the number of inputs."""
    parts = []
    for path in output.glob("part-*.jsonl"):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        failed = [row["error"] for row in rows if "error" in row]
        if failed:
            sys.exit(f"An input failed: {failed[0]}")
        parts.append((path.stat().st_mtime, sum(row.get("seconds", 1.0) for row in rows)))
    return sorted(parts)


def steady_rate(parts: Sequence[tuple[float, float]], workers: int) -> float:
    """Return size per second after as many parts as there are workers, which is when all have loaded their models.

    Args:
        parts: when each part was finished, and its size, in the order of time.
    """
    start = parts[workers - 1][0]
    return sum(size for _, size in parts[workers:]) / (parts[-1][0] - start)


def project(rates: Mapping[str, Mapping[int, float]], cpus: int, price: float | None) -> list[dict[str, float | str]]:
    """Compute hours, machine hours and the price of the large jobs."""
    rows: list[dict[str, float | str]] = []
    for verb, by_workers in rates.items():
        workers = max(by_workers)
        of_a_machine = by_workers[workers] / workers * cpus
        machine_hours = WORK[verb].size / of_a_machine / 3600
        for machines in MACHINES:
            row = {"work": WORK[verb].name, "machines": machines, "hours": machine_hours / machines}
            row["machine_hours"] = machine_hours
            rows.append(row if price is None else {**row, "price": machine_hours * price})
    return rows


def print_tables(rates: Mapping[str, Mapping[int, float]], cpus: int, price: float | None) -> None:
    from report import processor_name

    print(f"{processor_name()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n")
    print("| per second |", " | ".join(f"{workers} workers" for workers in next(iter(rates.values()))), "|")
    print("|---" * (1 + len(next(iter(rates.values())))) + "|")
    for verb, by_workers in rates.items():
        print(f"| {WORK[verb].unit} |", " | ".join(f"{rate:.3g}" for rate in by_workers.values()), "|")
    heading = "machine hours" if price is None else "machine hours | price"
    print(f"\n| work | machines of {cpus} CPUs | hours | {heading} |")
    print("|---" * (4 if price is None else 5) + "|")
    for row in project(rates, cpus, price):
        cells = [row["work"], row["machines"], f"{row['hours']:.3g}", f"{row['machine_hours']:.3g}"]
        print("|", " | ".join(map(str, cells + ([] if price is None else [f"{row['price']:.2f}"]))), "|")


if __name__ == "__main__":
    main()
