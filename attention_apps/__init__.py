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
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

_HOMES = {}

_SUBPACKAGES = (
    "applications",
    "decoding",
    "layers",
    "metrics",
    "models",
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
