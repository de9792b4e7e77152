"""Tiny translators, and data for them."""

import random

from attention_apps.applications import TextTranslator, TranslatorConfig
from attention_apps.preprocessing.sub_words import BYTES
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.training import read_config

NAMES = ("Anna", "Bob", "Carla")
VERBS = {"sees": "sieht", "likes": "mag", "finds": "findet"}
THINGS = {"dog": "Hund", "tree": "Baum", "house": "Haus"}
PIECES = ("▁", "▁the", "▁d", "og", "▁￭.", "▁A", "n", "na", "nn", "▁likes", "t", "r", "e", "ree", "￭")
TEXT = "Anna likes the tree. Bob sees the house."

_ENCODER = {"embedding_dim": 16, "num_layers": 1, "dropout": 0.0}
CONFIGS = {
    "transformer": {
        "vocabulary_size": 330,
        "max_sentence_length": 64,
        "encoder": {**_ENCODER, "num_heads": 2, "hidden_dim": 32},
        "decoder": {
            "kind": "transformer",
            "embedding_dim": 16,
            "num_layers": 1,
            "num_heads": 2,
            "hidden_dim": 32,
            "max_length": 30,
        },
        "decoding": {"beam_size": 2, "max_length": 20},
        "training": {
            "epochs": 50,
            "batch_size": 16,
            "max_batch_length": 400,
            "learning_rate": 0.02,
            "warmup_steps": 0,
            "schedule": "cosine",
            "label_smoothing": 0.0,
            "validate_every": 50,
        },
    }
}
CONFIGS["recurrent"] = {
    **CONFIGS["transformer"],
    "encoder": {**_ENCODER, "units": 12},
    "decoder": {"embedding_dim": 16, "units": 20, "attention": {"units": 12}, "initial_state": "last"},
}


def make_translator(config=CONFIGS["transformer"], overrides=(), pieces=None):
    """A translator; with pieces its model has random weights, without them it has none."""
    vocabulary = None if pieces is None else Vocabulary([*BYTES, *pieces])
    return TextTranslator(read_config(TranslatorConfig, config, overrides), vocabulary)


def make_pairs(count=64, seed=1):
    """Sentences and their translations, which are not quite German."""
    chance = random.Random(seed)
    for _ in range(count):
        name, verb, thing = (chance.choice(list(words)) for words in (NAMES, VERBS, THINGS))
        yield f"{name} {verb} the {thing}.", f"{name} {VERBS[verb]} das {THINGS[thing]}."


def write_tsv(path, pairs):
    path.write_text("".join("\t".join(row) + "\n" for row in [("source", "target"), *pairs]), encoding="utf-8")
    return path
