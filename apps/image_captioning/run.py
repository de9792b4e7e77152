"""Trains and scores an image captioner: prepare -> train -> calibrate -> evaluate -> export.

python run.py prepare  --data CORPUS --output RUN [--non-photos FOLDER]
python run.py train    --output RUN [--config config.toml] [--start PRESET] [--set training.batch_size=16] [--restart]
python run.py calibrate --output RUN [--foreign FOLDER]
python run.py evaluate --output RUN [--set decoding.beam_size=8]
python run.py export   --output RUN [--set encoder.mirrored=false]

`prepare` reads a corpus in any layout that dataset.py knows. Where it has boxes of objects, the first 800 photos that
have some are held out of training for the pointing game. FOLDER has pictures on which the model should be unsure: they
are trained on with captions of other photos. `train` goes through the stages of the configuration and
resumes where it stopped. `--start` begins with the weights of a preset: hard.toml with those of a soft captioner.
`export` writes the preset, RUN/preset, in 8 bits.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dataset
import imagenet

from attention_apps.applications import join_boxes

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from calibration import Calibration  # noqa: E402 - next to the folders of the recipes
from recipe import Recipe  # noqa: E402

# Photos with boxes that are held out of training for the pointing game.
HELD_OUT = 800
# Photos with fewer captions are not rewarded: CIDEr of one or two references is too noisy.
REWARDED_CAPTIONS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--non-photos", type=Path, metavar="FOLDER", help="pictures to be unsure of, for prepare")


def prepare(options: argparse.Namespace) -> None:
    boxes = dataset.find_table(options.data, "boxes")
    for split in dataset.SPLITS:
        pairs = dataset.read_corpus(options.data, split)
        if boxes is not None:
            pairs = join_boxes(pairs, boxes)
        if split == "train":
            pairs, held_out = dataset.hold_out(list(pairs), HELD_OUT)
            _write(options.output / "pointing.jsonl", held_out)
            _write(options.output / "rewarded.jsonl", dataset.with_captions(pairs, REWARDED_CAPTIONS))
            if options.non_photos is not None:
                pairs += dataset.with_wrong_captions(options.non_photos, pairs)
        _write(options.output / f"{split}.jsonl", pairs)


def _write(path: Path, pairs: Iterable[dataset.Pair]) -> None:
    photos, captions, left_out = dataset.write_pairs(pairs, path)
    print(f"{path.stem}: {photos:,} photos, {captions:,} captions, {left_out:,} left out")
    if not photos:
        path.unlink()


def load_pretrained(model: Any) -> None:
    """Starts with ImageNet weights, not with the backbone of a preset."""
    imagenet.load_imagenet_weights(model.encoder.network)


RECIPE = Recipe(
    task="image_captioning",
    folder=HERE,
    prepare=prepare,
    train="train.jsonl",
    validation="dev.jsonl",
    evaluated=("dev.jsonl", "pointing.jsonl", "test.jsonl"),
    add_arguments=add_arguments,
    load_pretrained=load_pretrained,
    # The backbone of a trained captioner is frozen, so that its features are computed once.
    calibration=Calibration(data="dev.jsonl", metric="cider", right=0.5, unsure=0.08),
    final_settings=("encoder.trainable_from=none", "augmented_views=0", "box_weight=0", "training.freeze=[]"),
)

if __name__ == "__main__":
    RECIPE.main(__doc__)
