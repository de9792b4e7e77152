"""Metrics that match the words of a text with those of its best reference, averaged over items."""

from collections import Counter
from collections.abc import Sequence
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from attention_apps.metrics.caption_metrics import caption_words
from attention_apps.metrics.metric import MetricResult, References, check_pairs, check_same_length, check_texts

_KINDS = {"1": "rouge1", "2": "rouge2", "l": "rougeL"}


def rouge(hypotheses: Sequence[str], references: References, kind: str = "l", stem: bool = True) -> MetricResult:
    """Compute ROUGE-1, 2 or L F1 from 0 to 1 with rouge-score: the mean over items of the best reference.

    `details` holds the mean `precision` and `recall`. Words are runs of a-z and 0-9 in the lowercased text, so other
    scripts score 0.

    Args:
        kind: "1", "2" or "l" (the longest common subsequence).
        stem: whether to compare Porter stems, as is usual in the literature.

    Reference: Lin 2004, sections 2 and 3.
    """
    if kind not in _KINDS:
        raise ValueError(f"`kind` must be one of {list(_KINDS)}. Received: kind={kind!r}")
    hypotheses, references = check_pairs(hypotheses, references)
    scorer = _rouge_scorer(kind, stem)
    scores = [scorer.score_multi(texts, hypothesis)[_KINDS[kind]] for hypothesis, texts in zip(hypotheses, references)]
    details = {
        "precision": float(np.mean([score.precision for score in scores])),
        "recall": float(np.mean([score.recall for score in scores])),
    }
    return MetricResult.mean_of(f"rouge_{kind}", [score.fmeasure for score in scores], details)


@cache
def _rouge_scorer(kind: str, stem: bool) -> Any:
    """Make the scorer of rouge-score, with its words and with cached stems."""
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenize import tokenize

    stemmer = _cached_stemmer() if stem else None
    tokenizer = SimpleNamespace(tokenize=lambda text: tokenize(text, stemmer))
    return RougeScorer([_KINDS[kind]], tokenizer=tokenizer)


def _cached_stemmer() -> Any:
    """Make a stemmer like nltk's `PorterStemmer` that computes each stem once."""
    from nltk.stem.porter import PorterStemmer

    return SimpleNamespace(stem=lru_cache(maxsize=2**16)(PorterStemmer().stem))


def meteor(hypotheses: Sequence[str], references: References) -> MetricResult:
    """Compute METEOR from 0 to 1 with nltk, with exact and stem matches: the mean over items of the best reference.

    This is the formula of 2007 (α 0.9, β 3, γ 0.5) on coco-caption's words. It is not comparable to METEOR 1.5 in
    captioning papers. That version needs Java, also matches synonyms and paraphrases, weights function words less and
    has tuned parameters.

    Reference: Lavie and Agarwal 2007, section 2.
    """
    from nltk.translate.meteor_score import meteor_score

    hypotheses, references = check_pairs(hypotheses, references)
    stemmer, no_synonyms = _cached_stemmer(), SimpleNamespace(synsets=lambda word: [])
    items = [
        meteor_score(
            [caption_words(text) for text in texts],
            caption_words(hypothesis),
            stemmer=stemmer,
            wordnet=no_synonyms,
        )
        for hypothesis, texts in zip(hypotheses, references)
    ]
    return MetricResult.mean_of("meteor", items)


def token_f1(hypotheses: Sequence[str], references: References) -> MetricResult:
    """Compute token F1 from 0 to 1 between bags of words: the mean over items of the best reference.

    Words are split at spaces and not normalized. `details` holds the mean `precision` and `recall`.

    Reference: Filippova et al. 2015 (F1 of the kept tokens).
    """
    hypotheses, references = check_pairs(hypotheses, references)
    scores = [max(_overlap(text, other) for other in texts) for text, texts in zip(hypotheses, references)]
    items, precision, recall = np.asarray(scores, dtype=np.float64).T
    details = {"precision": float(precision.mean()), "recall": float(recall.mean())}
    return MetricResult.mean_of("token_f1", items, details)


def compression_rate(texts: Sequence[str], sources: Sequence[str]) -> MetricResult:
    """Compute the number of words in each text divided by those in its source: the mean over items.

    Some papers count characters instead of words.
    """
    texts, sources = check_texts("texts", texts), check_texts("sources", sources)
    check_same_length(texts=texts, sources=sources)
    for index, source in enumerate(sources):
        if not source.strip():
            raise ValueError(f"`sources[{index}]` must not be blank. Received: {source!r}")
    items = [len(text.split()) / len(source.split()) for text, source in zip(texts, sources)]
    return MetricResult.mean_of("compression_rate", items)


def _overlap(hypothesis: str, reference: str) -> tuple[float, float, float]:
    """Return F1, precision and recall."""
    kept, wanted = Counter(hypothesis.split()), Counter(reference.split())
    common = (kept & wanted).total()
    if not common:
        return 0.0, 0.0, 0.0
    precision, recall = common / kept.total(), common / wanted.total()
    return 2 * precision * recall / (precision + recall), precision, recall
