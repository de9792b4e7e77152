"""Trains and scores a summarizer: prepare -> train -> calibrate -> evaluate -> export.

python run.py prepare  --data CORPUS --output RUN
python run.py train    --output RUN [--config config.toml] [--start FOLDER] [--set training.epochs=1] [--restart]
python run.py calibrate --output RUN [--foreign TEXTS]...
python run.py evaluate --output RUN [--set decoding.beam_size=8]
python run.py export   --output RUN

`prepare` reads a corpus in any layout that dataset.py knows. `train` resumes where it stopped. `calibrate` fits
the confidence; ../not_news.py writes TEXTS on which a model for news should be unsure. `export` writes the
preset, RUN/preset, in 8 bits.
"""

import sys
from pathlib import Path

import dataset

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from calibration import Calibration  # noqa: E402 - next to the folders of the recipes
from recipe import Recipe  # noqa: E402

RECIPE = Recipe(
    task="text_summarization",
    folder=HERE,
    prepare=lambda options: dataset.prepare(options.data, options.output),
    train="train.jsonl.gz",
    validation="watched.jsonl.gz",
    evaluated=("validation.jsonl.gz",),
    calibration=Calibration(data="validation.jsonl.gz", metric="rouge_l", right=0.4, unsure=0.04),
)

if __name__ == "__main__":
    RECIPE.main(__doc__)
