"""Corpora of photos and their captions: the only code of the recipe that knows how a corpus is laid out.

captions.tsv  captions.tsv or captions.tsv.gz with the columns image, caption and split (train, dev, test); images are
              named relative to it; boxes.tsv or boxes.tsv.gz beside it may have the boxes of objects in some photos
Flickr8k      Flickr8k.token.txt, Flickr_8k.trainImages.txt, .devImages.txt, .testImages.txt, in the folder itself or in
              Flickr8k_text, and the photos in Flicker8k_Dataset, Flickr8k_Dataset, Images or images
COCO          dataset_coco.json, which has the captions and Karpathy's split, and the photos in train2014 and val2014
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attention_apps.data import Manifest

SPLITS = ("train", "dev", "test")
Pair = dict[str, Any]

# What corpora call the splits.
_NAMES = {"train": ("train", "restval"), "dev": ("dev", "val", "validation"), "test": ("test",)}
_FLICKR_TEXTS = ("", "Flickr8k_text")
_FLICKR_PHOTOS = ("Flicker8k_Dataset", "Flickr8k_Dataset", "Images", "images")


def read_corpus(folder: Path, split: str) -> Iterator[Pair]:
    """The photos and captions of a split, whichever layout the folder has; a photo has several."""
    return find_layout(folder)(folder, split)


def find_layout(folder: Path) -> Callable[[Path, str], Iterator[Pair]]:
    """The reader of the layout that a folder has."""
    signs = {
        "captions.tsv": _read_table,
        "captions.tsv.gz": _read_table,
        "Flickr8k.token.txt": _read_flickr,
        "Flickr8k_text/Flickr8k.token.txt": _read_flickr,
        "dataset_coco.json": _read_coco,
    }
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}")
    for name, reader in signs.items():
        if (folder / name).is_file():
            return reader
    raise ValueError(f"{folder} has none of the layouts known: {', '.join(signs)}")


def find_table(folder: Path, name: str) -> Path | None:
    """The table of that name, as it is or compressed."""
    return next((path for ending in ("tsv", "tsv.gz") if (path := folder / f"{name}.{ending}").is_file()), None)


def hold_out(pairs: Sequence[Pair], count: int) -> tuple[list[Pair], list[Pair]]:
    """Takes the first `count` photos with boxes, by their names, out of the pairs; returns the rest and these."""
    photos = set(sorted({pair["image"] for pair in pairs if "boxes" in pair})[:count])
    rest = [pair for pair in pairs if pair["image"] not in photos]
    return rest, [pair for pair in pairs if pair["image"] in photos]


def with_captions(pairs: Sequence[Pair], count: int) -> list[Pair]:
    """The pairs of photos that have at least `count` captions."""
    captions = Counter(pair["image"] for pair in pairs)
    return [pair for pair in pairs if captions[pair["image"]] >= count]


def with_wrong_captions(folder: Path, pairs: Sequence[Pair]) -> list[Pair]:
    """Pictures that are no photos, each with captions of other photos.

    No caption fits, so a model that is trained on them learns to be unsure of such pictures ("outlier exposure",
    Hendrycks et al. 2019).
    """
    random = np.random.default_rng(0)
    chosen = (
        (path, pairs[place]) for path in sorted(folder.iterdir()) for place in random.integers(len(pairs), size=5)
    )
    return [{"image": str(path), "caption": pair["caption"]} for path, pair in chosen]


def write_pairs(pairs: Iterable[Pair], path: Path) -> tuple[int, int, int]:
    """Writes a manifest, a JSON object a line.

    Returns:
        How many photos and captions it has, and how many captions were left out because they are blank or their photo
        is not there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    photos: dict[str, bool] = {}
    written = left_out = 0
    with partial.open("w", encoding="utf-8") as file:
        for pair in pairs:
            photo = os.path.abspath(pair["image"])
            if not photos.setdefault(photo, os.path.isfile(photo)) or not pair["caption"].strip():
                left_out += 1
                continue
            entry = {**pair, "image": photo, "caption": pair["caption"].strip()}
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            written += 1
    os.replace(partial, path)
    return sum(photos.values()), written, left_out


def _read_table(folder, split):
    columns = {"image": "image", "caption": "caption", "split": "split"}
    for row in Manifest(find_table(folder, "captions"), columns, paths=("image",)).rows(_print_problem):
        if row["split"] in _NAMES[split]:
            yield {"image": row["image"], "caption": row["caption"]}


def _read_flickr(folder, split):
    texts = next(folder / name for name in _FLICKR_TEXTS if (folder / name / "Flickr8k.token.txt").is_file())
    photos = next((folder / name for name in _FLICKR_PHOTOS if (folder / name).is_dir()), None)
    if photos is None:
        raise FileNotFoundError(f"There is no folder of photos in {folder}: {', '.join(_FLICKR_PHOTOS)}")
    chosen = set((texts / f"Flickr_8k.{split}Images.txt").read_text(encoding="utf-8").split())
    for row in Manifest(texts / "Flickr8k.token.txt", {"image": "image", "caption": "caption"}).rows(_print_problem):
        if row["image"] in chosen:
            yield {"image": str(photos / row["image"]), "caption": row["caption"]}


def _read_coco(folder, split):
    for photo in json.loads((folder / "dataset_coco.json").read_text(encoding="utf-8"))["images"]:
        if photo["split"] in _NAMES[split]:
            path = folder / photo.get("filepath", "") / photo["filename"]
            for sentence in photo["sentences"]:
                yield {"image": str(path), "caption": " ".join(sentence["raw"].split())}


def _print_problem(problem):
    print(f"left out: {problem}", file=sys.stderr)
