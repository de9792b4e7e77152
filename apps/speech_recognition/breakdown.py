"""Print the word error rate of a preset by length of the recordings and by speaker, as a table in Markdown.

    python breakdown.py PRESET DATA.tsv

DATA is a manifest with the columns `audio`, `transcript` and, for rows by speaker, `speaker`. In brackets are 95 %
bootstrap intervals. They say nothing about other speakers: recordings are drawn, not speakers.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attention_apps.applications import load
from attention_apps.metrics import MetricResult, bootstrap_interval
from attention_apps.preprocessing import SAMPLE_RATE, read_audio

# Limits of the groups of lengths, in seconds.
LIMITS = (3, 4, 5, 6, 8)


def length_group(seconds: float) -> str:
    """The name of the group that a recording of some length is in."""
    below = [limit for limit in LIMITS if limit <= seconds]
    above = [limit for limit in LIMITS if limit > seconds]
    if not below:
        return f"under {LIMITS[0]} s"
    return f"{below[-1]} to {above[0]} s" if above else f"{LIMITS[-1]} s and more"


def select(metric: MetricResult, indices: Sequence[int]) -> MetricResult:
    """A metric of some of the items."""
    statistics = metric.statistics[indices]
    return replace(
        metric, score=metric.combine(statistics.sum(axis=0)), items=metric.items[indices], statistics=statistics
    )


def table(metric: MetricResult, groups: Sequence[str], order: Sequence[str]) -> list[str]:
    """A row for each group that has items, in the given order.

    Args:
        groups: the group of each item.
    """
    lines = []
    for group in order:
        indices = [index for index, name in enumerate(groups) if name == group]
        if indices:
            chosen = select(metric, indices)
            low, high = bootstrap_interval(chosen)
            lines.append(
                f"| {group} | {len(indices)} | {_percent(chosen.score)} ({_percent(low)} to {_percent(high)}) |"
            )
    return lines


def breakdown(recognizer: Any, data: Path) -> list[str]:
    """The table of a recognizer for a manifest: all recordings, groups of lengths, speakers from best to worst."""
    evaluation = recognizer.evaluate(data, quiet=True)
    metric = evaluation.metrics["wer"]
    lengths = [length_group(len(read_audio(source)) / SAMPLE_RATE) for source in evaluation.sources]
    speaker_of = {row["audio"]: row.values.get("speaker", "") for row in recognizer.manifest(data).rows()}
    speakers = [speaker_of[source] for source in evaluation.sources]
    rates = {name: select(metric, np.flatnonzero(np.array(speakers) == name)).score for name in set(speakers) - {""}}
    in_length = [length_group(limit) for limit in (0, *LIMITS)]
    return [
        "| | recordings | WER |",
        "|---|---|---|",
        *table(metric, ["all"] * len(lengths), ["all"]),
        *table(metric, lengths, in_length),
        *table(metric, speakers, sorted(rates, key=rates.__getitem__)),
    ]


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", metavar="NAME|FOLDER")
    parser.add_argument("data", type=Path, help="manifest: .csv, .tsv or .jsonl")
    options = parser.parse_args()
    print("\n".join(breakdown(load(options.preset), options.data)))


if __name__ == "__main__":
    main()
