"""Draws how the score of summarizers depends on the length of what they read (Bahdanau et al. 2015, figure 2).

python length_experiment.py draw --run "attention=RUN" --run "no attention=OTHER" --output lengths.png
python length_experiment.py backwards --output CORPUS

A run is a folder after `run.py evaluate`, or its validation_written.jsonl. All runs must have the same documents.
The shorter half of the plot is where a last state of the encoder is enough; the claim is about the other half.

`backwards` writes a corpus in which nothing can be guessed: documents of 2 to 24 syllables drawn at random, and the
same syllables backwards as their summaries. `run.py prepare` reads it, and lengths.toml is the ablation for it.
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from attention_apps.metrics import rouge

Scores = dict[str, np.ndarray]

_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnpr" for vowel in "aeiou"]
_LONGEST = 24
_PAIRS = {"train": 100_000, "validation": 2_000}


def read_run(path: Path) -> list[dict[str, Any]]:
    """The documents (`source`), their summaries (`references`) and what was `written`, in the order of the file."""
    path = path / "validation_written.jsonl" if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"There is no {path}: `run.py evaluate` writes it")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def score_runs(runs: dict[str, list[dict[str, Any]]], kind: str = "l") -> tuple[np.ndarray, Scores]:
    """The words of each document, and its ROUGE F1 in each run."""
    documents = [entry["source"] for entry in next(iter(runs.values()))]
    for name, entries in runs.items():
        if [entry["source"] for entry in entries] != documents:
            raise ValueError(f"All runs must be measured on the same documents. Received others: {name!r}")
    lengths = np.array([len(document.split()) for document in documents])
    scores = {
        name: rouge([entry["written"] for entry in entries], [entry["references"] for entry in entries], kind).items
        for name, entries in runs.items()
    }
    return lengths, scores


def bin_by_length(lengths: np.ndarray, scores: Scores, bins: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Mean lengths of bins of about equally many documents; for each run mean and standard error, `(2, bins)`."""
    groups = [group for group in np.array_split(np.argsort(lengths, kind="stable"), bins) if len(group)]
    centers = np.array([lengths[group].mean() for group in groups])
    binned = {
        name: np.array([(items[group].mean(), items[group].std() / len(group) ** 0.5) for group in groups]).T
        for name, items in scores.items()
    }
    return centers, binned


def draw(centers: np.ndarray, binned: dict[str, np.ndarray], kind: str, path: Path) -> None:
    figure = Figure(figsize=(7, 4.5), layout="constrained", dpi=150)
    axes = figure.subplots()
    for number, (name, (means, errors)) in enumerate(binned.items()):
        style = {"marker": "os^Dv"[number % 5], "linestyle": ("-", "--", ":", "-.")[number % 4]}
        (line,) = axes.plot(centers, means, label=name, **style)
        axes.fill_between(centers, means - errors, means + errors, color=line.get_color(), alpha=0.15)
    axes.set_xlabel("words in the source")
    axes.set_ylabel(f"ROUGE-{kind.upper()} F1")
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


def write_backwards(folder: Path, pairs: dict[str, int] = _PAIRS, seed: int = 0) -> None:
    """Writes documents of random syllables, and as summaries the same backwards."""
    chance = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in pairs.items():
        with (folder / f"{split}.jsonl").open("w", encoding="utf-8") as file:
            for _ in range(count):
                words = chance.choices(_SYLLABLES, k=chance.randint(2, _LONGEST))
                file.write(json.dumps({"document": " ".join(words), "summary": " ".join(words[::-1])}) + "\n")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("draw", "backwards"))
    parser.add_argument("--run", action="append", default=[], metavar="NAME=RUN", help="several times, for draw")
    parser.add_argument("--output", type=Path, required=True, help="the picture, .png, .svg or .pdf, or the corpus")
    parser.add_argument("--rouge", choices=("1", "2", "l"), default="l")
    parser.add_argument("--bins", type=int, default=8, help="groups of documents of similar length")
    options = parser.parse_args(arguments)
    if options.step == "backwards":
        write_backwards(options.output)
        return
    if not options.run:
        raise ValueError("`--run` must name at least one run.")
    runs = {name: read_run(path) for name, path in parse_runs(options.run).items()}
    centers, binned = bin_by_length(*score_runs(runs, options.rouge), options.bins)
    draw(centers, binned, options.rouge, options.output)
    print(to_table(centers, binned))


if __name__ == "__main__":
    main()
