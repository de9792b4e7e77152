"""Corpora of texts and their summaries: the only code of the recipe that knows how a corpus is laid out.

JSONL          train.jsonl, validation.jsonl (also .jsonl.gz): document, summary, and keep where words are deleted
CNN/DailyMail  cnn/stories/*.story, dailymail/stories/*.story, url_lists/all_train.txt, all_val.txt; or
               train.csv, validation.csv with the columns article and highlights
XSum           bbc-summary-data/*.summary, XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json
Gigaword       train.article.txt, train.title.txt, valid.article.filter.txt, valid.title.filter.txt
"""

import gzip
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, zip_longest
from pathlib import Path

from attention_apps.data import Manifest

SPLITS = ("train", "validation")
# Pairs of the validation split that choose the weights during training; `evaluate` takes all.
_WATCHED_PAIRS = 500
Pair = dict[str, str]

_XSUM_SPLITS = "XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json"
_GIGAWORD_FILES = {
    "train": ("train.article.txt", "train.title.txt"),
    "validation": ("valid.article.filter.txt", "valid.title.filter.txt"),
}
_CNN_LISTS = {"train": "all_train.txt", "validation": "all_val.txt"}


def prepare(corpus: Path, output: Path) -> None:
    """Writes `train.jsonl.gz`, `validation.jsonl.gz` and `watched.jsonl.gz`, the beginning of the latter."""
    for split in SPLITS:
        written, blank = write_pairs(read_corpus(corpus, split), output / f"{split}.jsonl.gz")
        print(f"{split}: {written:,} pairs, {blank:,} without text left out")
    write_pairs(islice(read_corpus(corpus, "validation"), _WATCHED_PAIRS), output / "watched.jsonl.gz")


def read_corpus(folder: Path, split: str) -> Iterator[Pair]:
    """The documents and summaries of a split, whichever layout the folder has."""
    return find_layout(folder)(folder, split)


def find_layout(folder: Path) -> Callable[[Path, str], Iterator[Pair]]:
    """The reader of the layout that a folder has."""
    signs = {
        "train.jsonl": _read_jsonl,
        "train.jsonl.gz": _read_jsonl,
        "url_lists": _read_stories,
        "train.csv": _read_csv,
        "bbc-summary-data": _read_xsum,
        "train.article.txt": _read_gigaword,
    }
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}")
    for name, reader in signs.items():
        if (folder / name).exists():
            return reader
    raise ValueError(f"{folder} has none of the layouts known: {', '.join(signs)}")


def write_pairs(pairs: Iterable[Pair], path: Path) -> tuple[int, int]:
    """Writes a gzipped JSONL; returns how many pairs it has, and how many were left out because a text was blank."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    written = blank = 0
    with gzip.open(partial, "wt", encoding="utf-8") as file:
        for pair in pairs:
            if not pair["document"].strip() or not pair["summary"].strip():
                blank += 1
                continue
            file.write(json.dumps(pair, ensure_ascii=False) + "\n")
            written += 1
    os.replace(partial, path)
    return written, blank


def _read_jsonl(folder, split):
    path = next((path for path in (folder / f"{split}.jsonl", folder / f"{split}.jsonl.gz") if path.exists()), None)
    if path is None:
        raise FileNotFoundError(f"There is no {split}.jsonl or {split}.jsonl.gz in {folder}")
    for row in Manifest(path, {"document": "document", "summary": "summary"}).rows(_print_problem):
        yield {name: row[name] for name in ("document", "summary", "keep") if name in row.values}


def _read_csv(folder, split):
    for row in Manifest(folder / f"{split}.csv", {"document": "article", "summary": "highlights"}).rows(_print_problem):
        yield {name: _one_line(row[name]) for name in ("document", "summary")}


def _read_stories(folder, split):
    """A story is called after the SHA-1 of its address; its highlights each follow a line @highlight."""
    for address in (folder / "url_lists" / _CNN_LISTS[split]).read_text(encoding="utf-8").split():
        name = hashlib.sha1(address.encode()).hexdigest() + ".story"
        paths = [folder / source / "stories" / name for source in ("cnn", "dailymail")]
        for path in filter(Path.exists, paths):
            document, *highlights = path.read_text(encoding="utf-8").split("@highlight")
            yield {"document": _one_line(document), "summary": ". ".join(_one_line(line) for line in highlights)}


def _read_xsum(folder, split):
    """A file has parts with headings such as [SN]RESTBODY[SN]; the summary is the article's first sentence."""
    for name in json.loads((folder / _XSUM_SPLITS).read_text(encoding="utf-8"))[split]:
        path = folder / "bbc-summary-data" / f"{name}.summary"
        if path.exists():
            parts = re.split(r"\[SN\]([A-Z-]+)\[SN\]", path.read_text(encoding="utf-8"))
            named = dict(zip(parts[1::2], parts[2::2], strict=True))
            missing = [part for part in ("RESTBODY", "FIRST-SENTENCE") if part not in named]
            if missing:
                _print_problem(f"{path} has no {' and no '.join(missing)}")
                continue
            yield {"document": _one_line(named["RESTBODY"]), "summary": _one_line(named["FIRST-SENTENCE"])}


def _read_gigaword(folder, split):
    articles, titles = (folder / name for name in _GIGAWORD_FILES[split])
    with articles.open(encoding="utf-8") as documents, titles.open(encoding="utf-8") as summaries:
        for document, summary in zip_longest(documents, summaries):
            if document is None or summary is None:
                raise ValueError(f"{articles} and {titles} must have equally many lines")
            yield {"document": document.strip(), "summary": summary.strip()}


def _print_problem(problem):
    print(f"left out: {problem}", file=sys.stderr)


def _one_line(text):
    return " ".join(text.split())
