"""Train and score a translator: prepare -> train -> calibrate -> evaluate -> export.

python run.py prepare   --data CORPUS --output RUN [--from en] [--to de]
python run.py train     --output RUN [--config config.toml] [--start FOLDER] [--set training.epochs=1] [--restart]
python run.py calibrate --output RUN [--foreign TEXTS]
python run.py evaluate  --output RUN [--set decoding.beam_size=8]
python run.py export    --output RUN

`prepare` reads a corpus in the layout that dataset.py describes. `train` resumes where it stopped. `calibrate` fits the
confidence; foreign_texts.py writes TEXTS on which a translator from English should be unsure. `evaluate` also prints
BLEU as papers on Multi30k report it, which needs `pip install sacremoses`. `export` writes the preset, RUN/preset, in
8 bits.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import dataset

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from calibration import Calibration  # noqa: E402 - next to the folders of the recipes
from recipe import Recipe  # noqa: E402


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="source", default="en", metavar="LANGUAGE", help="for prepare")
    parser.add_argument("--to", dest="target", default="de", metavar="LANGUAGE", help="for prepare")


def print_published_bleu(application: Any, options: argparse.Namespace) -> None:
    """Prints BLEU in the convention of the papers, and the signatures of the other scores."""
    from moses_bleu import moses_bleu

    from attention_apps.metrics import chrf, sacre_bleu

    language = json.loads((options.output / dataset.LANGUAGES).read_text(encoding="utf-8"))["target"]
    rows = [json.loads(line) for line in (options.output / "validation_written.jsonl").open(encoding="utf-8")]
    texts, references = [row["written"] for row in rows], [row["references"][0] for row in rows]
    print(json.dumps({"moses_bleu": round(moses_bleu(texts, references, language), 2), "lower_case": True}))
    for metric in (sacre_bleu, chrf):
        result = metric(texts, references)
        print(json.dumps({result.name: round(result.score, 2), **result.details}))


RECIPE = Recipe(
    task="machine_translation",
    folder=HERE,
    prepare=lambda options: dataset.prepare(options.data, options.output, options.source, options.target),
    train="train.jsonl.gz",
    validation="validation.jsonl.gz",
    evaluated=("validation.jsonl.gz",),
    add_arguments=add_arguments,
    after_evaluate=print_published_bleu,
    calibration=Calibration(data="validation.jsonl.gz", metric="chrf", right=50, unsure=0.05),
)

if __name__ == "__main__":
    RECIPE.main(__doc__)
