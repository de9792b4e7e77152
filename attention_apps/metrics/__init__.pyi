from .caption_metrics import CiderScorer, bleu, caption_words, cider, tokenize_captions
from .metric import MetricResult, bootstrap_interval
from .text_metrics import cer, chrf, compression_rate, meteor, rouge, sacre_bleu, token_f1, wer

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
