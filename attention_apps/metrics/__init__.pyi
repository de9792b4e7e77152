from .bleu_score import bleu
from .bootstrap import bootstrap_interval
from .caption_tokenizer import caption_words, tokenize_captions
from .chr_f_score import chrf
from .cider_scorer import CiderScorer, cider
from .error_rate import cer, wer
from .meteor_score import meteor
from .metric_result import MetricResult
from .rouge_f1 import rouge
from .sacre_bleu_score import sacre_bleu
from .token_overlap import compression_rate, token_f1

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
