"""Trains and scores an image captioner: prepare -> train -> evaluate -> export.

python run.py prepare  --data CORPUS --output RUN
python run.py train    --output RUN [--config config.toml] [--start PRESET] [--set training.batch_size=16] [--restart]
python run.py evaluate --output RUN [--set decoding.beam_size=8]
python run.py export   --output RUN [--set encoder.mirrored=false]

`prepare` reads a corpus in any layout that dataset.py knows. `train` goes through the stages of the configuration and
resumes where it stopped. `--start` begins with the weights of a preset: hard.toml with those of a soft captioner.
`export` writes the preset, RUN/preset, in 8 bits.
"""

import argparse
import sys
from pathlib import Path

import dataset

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from recipe import Recipe  # noqa: E402 - next to the folders of the recipes


def prepare(options: argparse.Namespace) -> None:
    for split in dataset.SPLITS:
        path = options.output / f"{split}.jsonl"
        photos, captions, left_out = dataset.write_pairs(dataset.read_corpus(options.data, split), path)
        print(f"{split}: {photos:,} photos, {captions:,} captions, {left_out:,} left out")
        if not photos:
            path.unlink()


RECIPE = Recipe(
    task="image_captioning",
    folder=HERE,
    prepare=prepare,
    train="train.jsonl",
    validation="dev.jsonl",
    evaluated=("dev.jsonl", "test.jsonl"),
    # The backbone of a trained captioner is frozen, so that its features are computed once.
    final_settings=("encoder.trainable_from=none", "augmented_views=0"),
)

if __name__ == "__main__":
    RECIPE.main(__doc__)
