"""The five applications, untrained, tiny and greedy, so that their graphs are made in little time."""

import functools

import keras
import numpy as np

from attention_apps.applications import (
    ImageCaptioner,
    SentenceCompressor,
    SpeechRecognizer,
    TextSummarizer,
    TextTranslator,
)
from attention_apps.preprocessing.sub_words import BYTES
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.preprocessing.word_forms import UNKNOWN_CLASSES
from attention_apps.training.config import read_config

TEXT = "Yesterday in the morning, Alice likes Bob in the old town. It was reported by the police of Zork, they said."
PHOTO = np.random.default_rng(0).integers(0, 256, (24, 36, 3), dtype=np.uint8)
RECORDING = 0.1 * np.random.default_rng(0).normal(size=16_000)  # one second at 16 kHz

_WORDS = [
    *UNKNOWN_CLASSES,
    "yesterday",
    "in",
    "the",
    "morning",
    ",",
    "alice",
    "likes",
    "bob",
    "old",
    "town",
    ".",
    "said",
]
_GREEDY = {"beam_size": 1, "max_length": 5}
_DECODER = {"embedding_dim": 6, "units": 6, "attention": {"units": 5}}
_CASES = {
    "captioner": (
        ImageCaptioner,
        {
            "encoder": {"backbone": "efficientnet_lite0", "image_size": 32, "units": 4},
            "decoder": _DECODER,
            "decoding": {**_GREEDY, "banned_tokens": [0, 1, 3]},
        },
        ["a", "dog", "runs"],
    ),
    "recognizer": (
        SpeechRecognizer,
        {
            "features": {"num_mels": 12},
            "encoder": {"units": 4, "num_layers": 1, "filters": 2},
            "decoder": _DECODER,
            "decoding": {**_GREEDY, "ctc_weight": 0.0},
            "output": {"min_confidence": 0.0},
        },
        ["A", "B", " "],
    ),
    "summarizer": (
        TextSummarizer,
        {
            "encoder": {"embedding_dim": 6, "units": 4},
            "decoder": {**_DECODER, "copying": True, "tied_embeddings": False},
            "shared_embedding": False,
            "decoding": _GREEDY,
        },
        _WORDS,
    ),
    "compressor": (
        SentenceCompressor,
        {"encoder": {"embedding_dim": 6, "units": 4}, "decoder": {"units": 5}, "decoding": {"beam_size": 1}},
        _WORDS,
    ),
    "translator": (
        TextTranslator,
        {
            "encoder": {"embedding_dim": 6, "num_layers": 1, "num_heads": 2, "hidden_dim": 8},
            "decoder": {
                "kind": "transformer",
                "embedding_dim": 6,
                "num_layers": 1,
                "num_heads": 2,
                "hidden_dim": 8,
            },
            "decoding": _GREEDY,
        },
        [*BYTES, "▁", "▁the", "▁town"],
    ),
}


@functools.cache
def make_application(kind):
    """A captioner, recognizer, summarizer, compressor or translator."""
    cls, config, words = _CASES[kind]
    keras.utils.set_random_seed(0)
    return cls(read_config(cls.config_class, config), Vocabulary(words))
