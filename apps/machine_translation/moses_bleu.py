"""BLEU as the papers on Multi30k report it: on lower-cased tokens after Moses normalization."""

from collections.abc import Sequence

from sacrebleu.metrics import BLEU
from sacremoses import MosesPunctNormalizer, MosesTokenizer


def moses_tokens(texts: Sequence[str], language: str) -> list[str]:
    """Texts with normalized punctuation, in lower case, with spaces between their tokens."""
    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return [
        tokenizer.tokenize(
            normalizer.normalize(text.lower()), aggressive_dash_splits=False, return_str=True, escape=False
        )
        for text in texts
    ]


def moses_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> float:
    """Corpus BLEU from 0 to 100 without smoothing, as `multi-bleu.perl` computes it."""
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    return metric.corpus_score(moses_tokens(hypotheses, language), [moses_tokens(references, language)]).score
