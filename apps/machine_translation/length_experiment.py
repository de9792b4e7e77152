"""Draws how the BLEU of translators depends on the length of the source (Bahdanau et al. 2015, figure 2).

python length_experiment.py --data PREPARED --output EXPERIMENT [--set training.max_steps=100]

PREPARED is a folder after `run.py prepare`. All models of lengths.toml are trained with the same data and steps, one
after the other: no attention, Bahdanau's, Luong's, and a Transformer. The same command resumes. EXPERIMENT/lengths.png
is the plot; the table is printed.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from attention_apps.metrics import sacre_bleu

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from ablation import folder_of, read_ablation  # noqa: E402 - next to the folders of the recipes
from length_plot import draw, groups_by_length, read_run, source_lengths, to_table  # noqa: E402

_RESAMPLES = 200


def bleu_by_length(runs: dict[str, list[dict[str, Any]]], bins: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Mean lengths of bins of sources; for each run corpus BLEU from 0 to 1 and its standard error, `(2, bins)`."""
    lengths = source_lengths(runs)
    groups = groups_by_length(lengths, bins)
    binned = {name: np.array([_bleu(entries, group) for group in groups]).T for name, entries in runs.items()}
    return np.array([lengths[group].mean() for group in groups]), binned


def _bleu(entries, group):
    """BLEU of some sources, and its standard error by resampling them."""
    chosen = [entries[index] for index in group]
    result = sacre_bleu([entry["written"] for entry in chosen], [entry["references"] for entry in chosen])
    chance = np.random.default_rng(0)
    draws = chance.integers(0, len(group), (_RESAMPLES, len(group)))
    error = np.std([result.combine(result.statistics[rows].sum(axis=0)) for rows in draws])
    return result.score / 100, error / 100


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder after `run.py prepare`")
    parser.add_argument("--output", type=Path, required=True, help="folder of all runs, of the plot and of the table")
    parser.add_argument("--bins", type=int, default=6, help="groups of sources of similar length")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every model")
    options = parser.parse_args(arguments)
    settings = [word for value in options.set for word in ("--set", value)]
    ablation = [HERE.parent / "ablation.py", HERE / "lengths.toml", "--data", options.data, "--output", options.output]
    subprocess.run(
        [str(word) for word in [sys.executable, *ablation, *settings]], check=True, stdout=subprocess.DEVNULL
    )
    names = [variant["name"] for variant in read_ablation(HERE / "lengths.toml")]
    runs = {name: read_run(options.output / folder_of(name)) for name in names}
    centers, binned = bleu_by_length(runs, options.bins)
    draw(centers, binned, "BLEU (from 0 to 1)", options.output / "lengths.png")
    print(to_table(centers, binned))


if __name__ == "__main__":
    main()
