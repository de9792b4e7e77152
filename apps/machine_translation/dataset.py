"""Corpora of sentences and their translations: the only code of the recipe that knows how a corpus is laid out.

Multi30k and other parallel texts  train.en, train.de and so on, val.en, val.de (also .gz): a sentence a line
"""

import gzip
import json
import os
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

# Our names of the splits, and those of the files.
SPLITS = {"train": "train", "validation": "val"}
# The file that says from which language to which the pairs are.
LANGUAGES = "languages.json"
Pair = dict[str, str]


def prepare(corpus: Path, output: Path, source: str, target: str) -> None:
    """Writes `train.jsonl.gz` and `validation.jsonl.gz`, from one language to another: `en` to `de`."""
    if source == target:
        raise ValueError(f"`--from` and `--to` must be two languages. Received: {source!r} twice")
    for split, name in SPLITS.items():
        paths = [find_file(corpus, f"{name}.{language}") for language in (source, target)]
        written, blank = write_pairs(read_pairs(*paths), output / f"{split}.jsonl.gz")
        print(f"{split}: {written:,} pairs, {blank:,} without text left out")
    (output / LANGUAGES).write_text(json.dumps({"source": source, "target": target}) + "\n", encoding="utf-8")


def find_file(folder: Path, name: str) -> Path:
    """The path of a text file, which may be compressed."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise FileNotFoundError(f"There is no {name} and no {name}.gz in {folder}")


def read_pairs(source: Path, target: Path) -> Iterator[Pair]:
    """The lines of two files side by side."""
    for one, other in zip_longest(_lines(source), _lines(target)):
        if one is None or other is None:
            raise ValueError(f"{source} and {target} must have equally many lines")
        yield {"source": one, "target": other}


def write_pairs(pairs: Iterator[Pair], path: Path) -> tuple[int, int]:
    """Writes a gzipped JSONL; returns how many pairs it has, and how many were left out because a text was blank."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    written = blank = 0
    with gzip.open(partial, "wt", encoding="utf-8") as file:
        for pair in pairs:
            if not all(pair.values()):
                blank += 1
                continue
            file.write(json.dumps(pair, ensure_ascii=False) + "\n")
            written += 1
    os.replace(partial, path)
    return written, blank


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for line in file:  # bytes end at line feeds alone
            yield line.decode("utf-8").strip()
