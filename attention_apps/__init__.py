"""Keras 3 attention layers, and image captioning, speech recognition and summarization built on them.

Nothing heavy is imported until one of the names below is asked for, so that `attention-apps --help` answers at once.
"""

import importlib
import os
import sys

from attention_apps._version import __version__

if "tensorflow" not in sys.modules:
    # Off by default on some CPUs, where it makes the same training step about twice as fast.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

# Public names and the modules they are in.
_HOMES = {
    "Caption": "attention_apps.applications.caption",
    "ImageCaptioner": "attention_apps.applications.image_captioner",
    "SpeechRecognizer": "attention_apps.applications.speech_recognizer",
    "TextSummarizer": "attention_apps.applications.text_summarizer",
    "Seq2Seq": "attention_apps.models.seq2seq",
    "TextEncoder": "attention_apps.models.text_encoder",
    "RecurrentDecoder": "attention_apps.models.recurrent_decoder",
    "TransformerDecoder": "attention_apps.models.transformer_decoder",
    "PointerGenerator": "attention_apps.models.pointer_generator",
    "DecodingOptions": "attention_apps.decoding.options",
    "DecodingResult": "attention_apps.decoding.result",
    "beam_search": "attention_apps.decoding.beam_search",
    "sample": "attention_apps.decoding.sampling",
    "Trainer": "attention_apps.training.trainer",
    "TrainingConfig": "attention_apps.training.config",
    "Vocabulary": "attention_apps.preprocessing.vocabulary",
}

_SUBPACKAGES = (
    "applications",
    "decoding",
    "layers",
    "metrics",
    "models",
    "plots",
    "preprocessing",
    "serving",
    "training",
)

__all__ = ["__version__", *_HOMES, *_SUBPACKAGES]


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _SUBPACKAGES:
        return importlib.import_module(f"attention_apps.{name}")
    raise AttributeError(f"module 'attention_apps' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
