"""The options, the table and the JSON that the benchmarks of whole models share."""

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Iterable

from workloads import WORKLOADS

COLUMNS = (
    "",
    "a second",
    "median ms",
    "spread ms",
    "CPU ms",
    "first run s",
    "peak MB",
    "to PyTorch",
    "by CPU",
)


def make_parser(description: str, shapes: Iterable[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    shapes = list(shapes)
    parser.add_argument("--threads", type=int, default=1, help="threads of each contender (default: 1)")
    parser.add_argument("--repeats", type=int, default=7, help="runs of each that count (default: 7)")
    parser.add_argument("--shapes", nargs="+", choices=shapes, default=shapes, help="which models (default: all)")
    parser.add_argument("--quick", action="store_true", help="small shapes, and nothing that compiles for long")
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")
    return parser


def require_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise SystemExit("PyTorch is compared with, and missing here: pip install torch==2.13.0")


def show_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def print_report(report: dict, unit: str, as_json: bool) -> None:
    """The report of a benchmark: `contests` by title, of figures by contender, and what they were measured on."""
    if as_json:
        print(json.dumps(report, indent=2))
        return
    from rich.console import Console

    console = Console(width=120) if not sys.stdout.isatty() else Console()
    console.print(make_table(report, unit))
    machine = report["machine"]
    console.print(
        f"{machine['processor']}, {machine['cpus']} CPUs, load {machine['load']:.1f} before and "
        f"{report['load_after']:.1f} after; TensorFlow {machine['tensorflow']}, Keras {machine['keras']}, "
        f"PyTorch {machine['torch']}"
    )


def make_table(report: dict, unit: str):
    from rich.table import Table

    threads = report["threads"]
    table = Table(title=f"{report['benchmark']}: {unit} a second, {threads} thread{'s' if threads > 1 else ''}")
    for column in COLUMNS:
        table.add_column(column, justify="right" if column else "left")
    for title, contest in report["contests"].items():
        table.add_section()
        table.add_row(f"[bold]{title}[/]")
        for name, figures in contest["contenders"].items():
            table.add_row(name, *make_cells(figures))
    return table


def make_cells(figures: dict) -> list[str]:
    if "error" in figures:
        return ["does not run here"]
    columns: list[tuple[str, Callable]] = [
        ("per_second", lambda value: f"{value:.3g}" if value < 1000 else f"{value:.0f}"),
        ("median_seconds", lambda value: f"{1000 * value:.1f}"),
        ("spread_seconds", lambda value: f"{1000 * value:.1f}"),
        ("cpu_seconds_per_run", lambda value: f"{1000 * value:.1f}"),
        ("first_run_seconds", lambda value: f"{value:.1f}"),
        ("peak_memory_bytes", lambda value: f"{value / 1e6:.0f}"),
        ("speed_of_pytorch", lambda value: f"{value:.2f}"),
        ("speed_of_pytorch_by_cpu", lambda value: f"{value:.2f}"),
    ]
    return [write(figures[key]) for key, write in columns]


def choose_workloads(options: argparse.Namespace) -> dict:
    from workloads import quick

    return {name: quick(name) if options.quick else WORKLOADS[name] for name in options.shapes}
