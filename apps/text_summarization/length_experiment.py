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
import sys
from pathlib import Path
from typing import Any

import numpy as np

from attention_apps.metrics import rouge

sys.path.insert(0, str(Path(__file__).parents[1]))

from length_plot import draw, groups_by_length, parse_runs, read_run, source_lengths, to_table

Scores = dict[str, np.ndarray]

_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnpr" for vowel in "aeiou"]
_LONGEST = 24
_PAIRS = {"train": 100_000, "validation": 2_000}


def score_runs(runs: dict[str, list[dict[str, Any]]], kind: str = "l") -> tuple[np.ndarray, Scores]:
    """The words of each document, and its ROUGE F1 in each run."""
    scores = {
        name: rouge([entry["written"] for entry in entries], [entry["references"] for entry in entries], kind).items
        for name, entries in runs.items()
    }
    return source_lengths(runs), scores


def bin_by_length(lengths: np.ndarray, scores: Scores, bins: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Mean lengths of bins of about equally many documents; for each run mean and standard error, `(2, bins)`."""
    groups = groups_by_length(lengths, bins)
    centers = np.array([lengths[group].mean() for group in groups])
    binned = {
        name: np.array([(items[group].mean(), items[group].std() / len(group) ** 0.5) for group in groups]).T
        for name, items in scores.items()
    }
    return centers, binned


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
    draw(centers, binned, f"ROUGE-{options.rouge.upper()} F1", options.output)
    print(to_table(centers, binned))


if __name__ == "__main__":
    main()
