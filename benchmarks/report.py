"""The options, the table and the JSON that the benchmarks of whole models share."""

import argparse
import importlib.util
import json
import os
import platform
import sys
from importlib import metadata
from typing import Any

from contest import Contest, Entry, hold_contest
from rich.console import Console
from rich.table import Table
from workers import set_threads
from workloads import WORKLOADS

PACKAGES = ("attention_apps", "tensorflow", "keras", "torch")
# Heading, entry of the figures, factor and format of each column.
COLUMNS = (
    ("a second", "per_second", 1, ",.4g"),
    ("median ms", "median_seconds", 1e3, ",.1f"),
    ("spread ms", "spread_seconds", 1e3, ",.1f"),
    ("CPU ms", "cpu_seconds_per_run", 1e3, ",.1f"),
    ("first run s", "first_run_seconds", 1, ".1f"),
    ("peak MB", "peak_memory_bytes", 1e-6, ",.0f"),
    ("of PyTorch", "speed_of_pytorch", 1, ".2f"),
    ("by CPU", "speed_of_pytorch_by_cpu", 1, ".2f"),
)


def make_parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ",".join(WORKLOADS)
    parser.add_argument("--shapes", type=shape_names, default=names, help=f"which models (default: {names})")
    parser.add_argument("--threads", type=int, default=1, help="threads of each contender (default: 1)")
    parser.add_argument("--repeats", type=int, default=7, help="runs of each that count (default: 7)")
    parser.add_argument("--quick", action="store_true", help="small shapes, and nothing that compiles for long")
    parser.add_argument("--without-torch", action="store_true", help="leave PyTorch out")
    parser.add_argument("--without-compile", action="store_true", help="leave torch.compile out, which takes minutes")
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")
    return parser


def shape_names(text: str) -> list[str]:
    names = text.split(",")
    unknown = sorted(set(names) - set(WORKLOADS))
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is none of {', '.join(WORKLOADS)}")
    return names


def run_benchmark(title: str, unit: str, contests: dict[str, Contest], options: argparse.Namespace) -> None:
    """Holds contests one after the other and prints what came out."""
    with_torch = not options.without_torch and has_torch()
    with_compiled = not (options.without_compile or options.quick)

    def takes_part(entry: Entry) -> bool:
        return (with_torch or not entry.needs_torch) and (with_compiled or not entry.compiled)

    contests = {name: contest.choose(takes_part) for name, contest in contests.items()}
    set_threads(options.threads)
    report = {"benchmark": title, "threads": options.threads, "machine": describe_machine(), "contests": {}}
    for name, contest in contests.items():
        figures = hold_contest(name, contest, options.repeats, show_progress)
        report["contests"][name] = {"workload": contest.sizes, "contenders": figures}
    report["load_after"] = os.getloadavg()[0]
    print(json.dumps(report, indent=2)) if options.json else print_report(report, unit)


def has_torch() -> bool:
    found = importlib.util.find_spec("torch") is not None
    if not found:
        show_progress("PyTorch is not installed and is left out; to compare with it: pip install torch==2.13.0")
    return found


def show_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def describe_machine() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    installed = {name for name in PACKAGES if importlib.util.find_spec(name) is not None}
    return {
        "processor": processor_name(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in PACKAGES if name in installed},
    }


def processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def print_report(report: dict, unit: str) -> None:
    machine, threads = report["machine"], report["threads"]
    table = Table(title=f"{report['benchmark']}: {unit} a second, {threads} thread{'s' if threads > 1 else ''}")
    for heading, *_ in (("",), *COLUMNS):
        table.add_column(heading, justify="right" if heading else "left")
    for title, contest in report["contests"].items():
        table.add_section()
        table.add_row(f"[bold]{title}[/]")
        for name, figures in contest["contenders"].items():
            table.add_row(name, *make_cells(figures))
    versions = ", ".join(f"{name} {machine[name]}" for name in PACKAGES if name in machine)
    loads = f"load {machine['load']:.1f} before and {report['load_after']:.1f} after"
    console = Console() if sys.stdout.isatty() else Console(width=120)
    console.print(table)
    console.print(f"{machine['processor']}, {machine['cpus']} CPUs, {loads}; {versions}")


def make_cells(figures: dict) -> list[str]:
    if "error" in figures:
        return ["does not run here"]
    return [f"{figures[key] * factor:{form}}" if key in figures else "" for _, key, factor, form in COLUMNS]
