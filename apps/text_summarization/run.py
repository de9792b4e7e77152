"""Trains and scores a summarizer: prepare -> train -> evaluate -> export.

python run.py prepare  --data CORPUS --output RUN
python run.py train    --output RUN [--config config.toml] [--start FOLDER] [--set training.epochs=1] [--restart]
python run.py evaluate --output RUN [--set decoding.beam_size=8]
python run.py export   --output RUN

`prepare` reads a corpus in any layout that dataset.py knows. `train` resumes where it stopped. `export` writes the
preset, RUN/preset, in 8 bits.
"""

import sys
from pathlib import Path

import dataset

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from recipe import Recipe  # noqa: E402 - next to the folders of the recipes

RECIPE = Recipe(
    task="text_summarization",
    folder=HERE,
    prepare=lambda options: dataset.prepare(options.data, options.output),
    train="train.jsonl.gz",
    validation="watched.jsonl.gz",
    evaluated=("validation.jsonl.gz",),
)

if __name__ == "__main__":
    RECIPE.main(__doc__)
