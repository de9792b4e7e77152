"""Strings in, numbers out: a metric is a function of hypotheses and references that returns a `MetricResult`.

Each is imported when it is first asked for: the packages behind some of them take seconds.
"""

import importlib

_HOMES = {
    "MetricResult": "metric_result",
    "bootstrap_interval": "bootstrap",
    "bleu": "bleu_score",
    "sacre_bleu": "sacre_bleu_score",
    "cider": "cider_scorer",
    "CiderScorer": "cider_scorer",
    "meteor": "meteor_score",
    "rouge": "rouge_f1",
    "wer": "error_rate",
    "cer": "error_rate",
    "token_f1": "token_overlap",
    "compression_rate": "token_overlap",
    "caption_words": "caption_tokenizer",
    "tokenize_captions": "caption_tokenizer",
}

__all__ = list(_HOMES)


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(f"attention_apps.metrics.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'attention_apps.metrics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
