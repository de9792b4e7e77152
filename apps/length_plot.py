"""What the experiments with the length of the source share: their runs, the plot and the table."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

Entries = list[dict[str, Any]]


def read_run(path: Path) -> Entries:
    """The `source`, the `references` and what was `written`, for each line of the file."""
    path = path / "validation_written.jsonl" if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"There is no {path}: `run.py evaluate` writes it")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def source_lengths(runs: dict[str, Entries]) -> np.ndarray:
    """The words of each source, which must be the same in all runs."""
    sources = [entry["source"] for entry in next(iter(runs.values()))]
    for name, entries in runs.items():
        if [entry["source"] for entry in entries] != sources:
            raise ValueError(f"All runs must be measured on the same documents. Received others: {name!r}")
    return np.array([len(source.split()) for source in sources])


def groups_by_length(lengths: np.ndarray, bins: int) -> list[np.ndarray]:
    """The indices of about equally many sources of similar length."""
    return [group for group in np.array_split(np.argsort(lengths, kind="stable"), bins) if len(group)]


def draw(centers: np.ndarray, binned: dict[str, np.ndarray], label: str, path: Path) -> None:
    """Draws the scores of each run against the lengths, with their standard errors."""
    figure = Figure(figsize=(7, 4.5), layout="constrained", dpi=150)
    axes = figure.subplots()
    for number, (name, (means, errors)) in enumerate(binned.items()):
        style = {"marker": "os^Dv"[number % 5], "linestyle": ("-", "--", ":", "-.")[number % 4]}
        (line,) = axes.plot(centers, means, label=name, **style)
        axes.fill_between(centers, means - errors, means + errors, color=line.get_color(), alpha=0.15)
    axes.set_xlabel("words in the source")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path)


def to_table(centers: np.ndarray, binned: dict[str, np.ndarray]) -> str:
    """The same as Markdown."""
    lines = ["| words | " + " | ".join(binned) + " |", "|---|" + "---|" * len(binned)]
    for place, center in enumerate(centers):
        figures = " | ".join(f"{100 * means[place]:.1f}" for means, _ in binned.values())
        lines.append(f"| {center:.0f} | {figures} |")
    return "\n".join(lines)


def parse_runs(pairs: list[str]) -> dict[str, Path]:
    """`["attention=RUN"]` as `{"attention": Path("RUN")}`."""
    runs = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not name or not equals or not path:
            raise ValueError(f"`--run` must have the form NAME=RUN. Received: {pair!r}")
        runs[name] = Path(path)
    return runs
