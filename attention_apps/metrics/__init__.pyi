from .caption_metrics import CiderScorer, bleu, caption_words, cider, tokenize_captions
from .error_rate import cer, wer
from .metric import MetricResult, bootstrap_interval
from .overlap_metrics import compression_rate, meteor, rouge, token_f1
from .translation_metrics import chrf, sacre_bleu

__all__ = [
    "CiderScorer",
    "MetricResult",
    "bleu",
    "bootstrap_interval",
    "caption_words",
    "cer",
    "chrf",
    "cider",
    "compression_rate",
    "meteor",
    "rouge",
    "sacre_bleu",
    "token_f1",
    "tokenize_captions",
    "wer",
]
