"""Trains and scores a sentence compressor: prepare -> train -> calibrate -> evaluate -> export.

python run.py prepare  --data CORPUS --output RUN
python run.py train    --output RUN [--config config.toml] [--start FOLDER] [--set training.epochs=1] [--restart]
python run.py calibrate --output RUN [--foreign TEXTS]...
python run.py evaluate --output RUN [--set decoding.keep_bias=0.5]
python run.py export   --output RUN

The corpus is read by dataset.py of the recipe text_summarization. `train` resumes where it stopped. `calibrate` fits
the confidence; ../not_news.py writes TEXTS on which a model for news should be unsure. `export` writes the
preset, RUN/preset, in 8 bits.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "text_summarization")]

import dataset  # noqa: E402 - shared with text_summarization
from calibration import Calibration  # noqa: E402
from recipe import Recipe  # noqa: E402 - next to the folders of the recipes

RECIPE = Recipe(
    task="sentence_compression",
    folder=HERE,
    prepare=lambda options: dataset.prepare(options.data, options.output),
    train="train.jsonl.gz",
    validation="watched.jsonl.gz",
    evaluated=("validation.jsonl.gz",),
    calibration=Calibration(data="validation.jsonl.gz", metric="token_f1", right=0.8, unsure=0.04),
)

if __name__ == "__main__":
    RECIPE.main(__doc__)
