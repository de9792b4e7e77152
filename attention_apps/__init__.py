"""Keras 3 attention layers, and image captioning, speech recognition, summarization and more built on them.

Nothing heavy is imported until one of the names is used, so that `attention-apps --help` answers at once.
"""

import os
import sys

import lazy_loader

from attention_apps._version import __version__ as __version__
from attention_apps.terminal import silence_tensorflow

silence_tensorflow()
if "tensorflow" not in sys.modules:
    # Off by default on some CPUs, where it makes the same training step about twice as fast.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

__getattr__, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = ["__version__", *_names]
