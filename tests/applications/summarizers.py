"""Tiny summarizers and compressors, and data for them."""

import json
import random

from attention_apps.applications import CompressorConfig, SentenceCompressor, SummarizerConfig, TextSummarizer
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.preprocessing.word_forms import UNKNOWN_CLASSES
from attention_apps.training import read_config

NAMES = ("Alice", "Bob", "Carla", "London", "Paris", "Zork")
VERBS = ("sees", "likes", "finds")
WORDS = (*NAMES, *VERBS, "in", "the", "old", "town", "Yesterday", "morning", "It", "was", "￭,", "￭.")
TEXT = "Yesterday in the morning, Alice likes Qwert in the old town. It was reported by the police."
LONG_TEXT = " ".join([TEXT, "Bob sees Paris by night.", "Nobody finds London now, it seems.", TEXT])

_TRAINING = {"epochs": 12, "batch_size": 16, "learning_rate": 0.03, "label_smoothing": 0.0, "validate_every": 12}
_ENCODER = {"embedding_dim": 12, "units": 8, "dropout": 0.0}
_DECODER = {
    "embedding_dim": 12,
    "units": 14,
    "attend": "after",
    "tied_embeddings": True,
    "initial_state": "last",
    "copying": True,
    "attention": {"units": 9},
}
CONFIGS = {
    "generate": {
        "vocabulary_size": 40,
        "max_source_length": 30,
        "encoder": _ENCODER,
        "decoder": _DECODER,
        "decoding": {"beam_size": 3, "num_best": 2, "max_length": 9},
        "training": _TRAINING,
    },
    "delete": {
        "vocabulary_size": 40,
        "max_source_length": 30,
        "encoder": _ENCODER,
        "decoder": {"units": 10},
        "decoding": {"beam_size": 2},
        "training": _TRAINING,
    },
}
TRANSFORMER = {
    **CONFIGS["generate"],
    "encoder": {"kind": "transformer", "embedding_dim": 12, "num_heads": 2, "hidden_dim": 16},
    "decoder": {"kind": "transformer", "embedding_dim": 12, "num_heads": 2, "hidden_dim": 16, "copying": True},
}


def make_summarizer(config=CONFIGS["generate"], overrides=(), words=None):
    """A summarizer; with words its model has random weights, without them it has none."""
    return TextSummarizer(read_config(SummarizerConfig, config, overrides), _vocabulary(words))


def make_compressor(config=CONFIGS["delete"], overrides=(), words=None):
    """A compressor; with words its model has random weights, without them it has none."""
    return SentenceCompressor(read_config(CompressorConfig, config, overrides), _vocabulary(words))


def make_rows(kind, count=48):
    """Rows of a manifest for a summarizer (`generate`) or a compressor (`delete`)."""
    chance = random.Random(5)
    return [(_headline if kind == "generate" else _compression)(chance) for _ in range(count)]


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _vocabulary(words):
    return None if words is None else Vocabulary([*UNKNOWN_CLASSES, *words])


def _headline(chance):
    (first, second), verb = chance.sample(NAMES, 2), chance.choice(VERBS)
    document = f"Yesterday in the morning, {first} {verb} {second} in the old town. It was reported by the police."
    return {"document": document, "summary": f"{first} {verb} {second}"}


def _compression(chance):
    (first, second), verb = chance.sample([name.lower() for name in NAMES], 2), chance.choice(VERBS)
    words = f"yesterday , {first} {verb} {second} in the old town .".split()
    kept = {first, verb, second, "."}
    keep = "".join(str(int(word in kept)) for word in words)
    return {
        "document": " ".join(words),
        "summary": " ".join(word for word in words if word in kept),
        "keep": keep,
    }
