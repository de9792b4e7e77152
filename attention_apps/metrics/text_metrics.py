"""Metrics of transcripts, summaries and translations.

Error rates are computed with jiwer, ROUGE with rouge-score, METEOR with nltk, and BLEU and chrF with sacreBLEU.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib.metadata import version
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

import numpy as np

from attention_apps.metrics.caption_metrics import caption_words
from attention_apps.metrics.metric import MetricResult, References, check_pairs, check_same_length, check_texts

_ROUGE_KINDS = {"1": "rouge1", "2": "rouge2", "l": "rougeL"}
_BLEU_ORDERS = 4
_BLEU_SIGNATURE = "case:mixed|eff:no|tok:13a|smooth:exp"


def wer(hypotheses: Sequence[str], references: References) -> MetricResult:
    """Compute the word error rate with jiwer: all errors divided by all reference words. It can exceed 1.

    Case and punctuation count. Consecutive white space counts as one space. `details` holds `substitutions`,
    `deletions`, `insertions` and `reference_length`.
    """
    import jiwer

    return _error_rate("wer", jiwer.process_words, hypotheses, references)


def cer(hypotheses: Sequence[str], references: References) -> MetricResult:
    """Compute the character error rate with jiwer. Spaces between words are characters. Otherwise like `wer`."""
    import jiwer

    return _error_rate("cer", jiwer.process_characters, hypotheses, references)


def _error_rate(name: str, process: Callable, hypotheses: Sequence[str], references: References) -> MetricResult:
    hypotheses, references = check_pairs(hypotheses, references)
    for index, texts in enumerate(references):
        if len(texts) > 1:
            raise ValueError(f"`references[{index}]` must be one text for this metric. Received: {len(texts)} texts")
    output = process(
        [" ".join(text.split()) for (text,) in references], [" ".join(text.split()) for text in hypotheses]
    )
    rows = []
    for chunks in output.alignments:
        counts = Counter()
        for chunk in chunks:
            in_reference = chunk.ref_end_idx - chunk.ref_start_idx
            counts[chunk.type] += in_reference or chunk.hyp_end_idx - chunk.hyp_start_idx
        rows.append([counts[kind] for kind in ("substitute", "delete", "insert", "equal")])
    statistics = np.asarray(rows, dtype=np.float64)
    substitutions, deletions, insertions, hits = (int(count) for count in statistics.sum(axis=0))
    return MetricResult(
        name=name,
        score=_rate(statistics.sum(axis=0)),
        items=np.asarray([_rate(row) for row in statistics]),
        statistics=statistics,
        combine=_rate,
        details={
            "substitutions": substitutions,
            "deletions": deletions,
            "insertions": insertions,
            "reference_length": substitutions + deletions + hits,
        },
    )


def _rate(total: np.ndarray) -> float:
    substitutions, deletions, insertions, hits = total.tolist()
    return (substitutions + deletions + insertions) / (substitutions + deletions + hits)


def rouge(hypotheses: Sequence[str], references: References, kind: str = "l", stem: bool = True) -> MetricResult:
    """Compute ROUGE-1, 2 or L F1 from 0 to 1 with rouge-score: the mean over items of the best reference.

    `details` holds the mean `precision` and `recall`. Words are runs of a-z and 0-9 in the lowercased text, so other
    scripts score 0.

    Args:
        kind: "1", "2" or "l" (the longest common subsequence).
        stem: whether to compare Porter stems, as is usual in the literature.

    Reference: Lin 2004, sections 2 and 3.
    """
    if kind not in _ROUGE_KINDS:
        raise ValueError(f"`kind` must be one of {list(_ROUGE_KINDS)}. Received: kind={kind!r}")
    hypotheses, references = check_pairs(hypotheses, references)
    scorer = _rouge_scorer(kind, stem)
    scores = [
        scorer.score_multi(texts, hypothesis)[_ROUGE_KINDS[kind]] for hypothesis, texts in zip(hypotheses, references)
    ]
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
    return RougeScorer([_ROUGE_KINDS[kind]], tokenizer=tokenizer)


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
    scores = []
    for hypothesis, texts in zip(hypotheses, references):
        kept, overlaps = Counter(hypothesis.split()), []
        for text in texts:
            wanted = Counter(text.split())
            common = (kept & wanted).total()
            precision, recall = common / max(kept.total(), 1), common / wanted.total()
            overlaps.append((2 * precision * recall / (precision + recall) if common else 0.0, precision, recall))
        scores.append(max(overlaps))
    items, precisions, recalls = np.asarray(scores, dtype=np.float64).T
    details = {"precision": float(precisions.mean()), "recall": float(recalls.mean())}
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


def sacre_bleu(hypotheses: Sequence[str], references: References) -> MetricResult:
    """Compute corpus BLEU from 0 to 100 with sacreBLEU's defaults: cased, 13a tokens, exponential smoothing.

    The score of a single item skips the orders for which it is too short, as sacreBLEU recommends. `details` has the
    signature.

    Reference: Post 2018.
    """
    from sacrebleu.metrics import BLEU

    hypotheses, references = check_pairs(hypotheses, references)
    metric = BLEU(effective_order=True)
    sentences = [metric.sentence_score(*pair) for pair in zip(hypotheses, references)]
    statistics = np.asarray(
        [[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in sentences],
        dtype=np.float64,
    )
    return MetricResult(
        name="sacre_bleu",
        score=_bleu(statistics.sum(axis=0)),
        items=np.asarray([score.score for score in sentences]),
        statistics=statistics,
        combine=_bleu,
        details={"signature": f"nrefs:{min(map(len, references))}|{_BLEU_SIGNATURE}|version:{version('sacrebleu')}"},
    )


def _bleu(total: np.ndarray) -> float:
    from sacrebleu.metrics import BLEU

    length, reference_length, *counts = total.tolist()
    score = BLEU.compute_bleu(
        counts[:_BLEU_ORDERS], counts[_BLEU_ORDERS:], int(length), int(reference_length), smooth_method="exp"
    )
    return float(score.score)


def chrf(hypotheses: Sequence[str], references: References) -> MetricResult:
    """Compute corpus chrF2 from 0 to 100 with sacreBLEU's defaults: six orders of characters, no words.

    Of several references, the closest counts. `details` has the signature.

    Reference: Popović 2015.
    """
    from sacrebleu.metrics import CHRF

    hypotheses, references = check_pairs(hypotheses, references)
    metric = CHRF()
    # Each row has the n-grams of the text, of its reference and of both, for each order.
    rows = metric._extract_corpus_statistics(hypotheses, list(zip_longest(*references)))
    statistics = np.asarray(rows, dtype=np.float64)
    return MetricResult(
        name="chrf",
        score=_chrf(statistics.sum(axis=0)),
        items=np.asarray([_chrf(row) for row in statistics]),
        statistics=statistics,
        combine=_chrf,
        details={"signature": str(metric.get_signature())},
    )


def _chrf(total: np.ndarray) -> float:
    from sacrebleu.metrics import CHRF

    return float(CHRF()._compute_f_score(total.tolist()))
