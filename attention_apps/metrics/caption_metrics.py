"""Metrics of captions, equal to those of coco-caption: its words, BLEU and CIDEr-D."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from attention_apps.metrics.metric import MetricResult, References, check_pairs, check_references

_DROPPED = frozenset(("''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", ";", '"'))
# coco-caption intends to remove brackets too, but it lowercases their names first, so they stay.
_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_TYPOGRAPHIC = str.maketrans(
    {
        "\u201c": '"',
        "\u201d": '"',
        "\u2018": "'",
        "\u2019": "'",
        "\u2013": "--",
        "\u2014": "--",
        "\u2026": "...",
    }
)
_TWO_WORDS = re.compile(r"\b(can)(not)\b|\b(gon|wan)(na)\b|\b(got)(ta)\b|\b(gim|lem)(me)\b")
_CONTRACTION = re.compile(r"(?<=\w)(n't|'(?:s|m|d|re|ve|ll))(?![\w'])")
_WORD = r"\w+(?:'\w+)*"
_TOKEN = re.compile(
    rf"""
    (?:[^\W\d_]\.){{2,}}                                 # u.s., a.m.
    | \b(?:[^\W\d_]|mr|mrs|ms|dr|st|jr|sr|vs|etc|mt)\.(?=\s+\S)  # abbreviations, unless they end the caption
    | -(?:[lr][rsc]b)-                                   # brackets that have been named already
    | \w+\.(?:com|net|org)\b
    | <[a-z]+>
    | n't | '(?:s|m|d|re|ve|ll)(?!\w) | '\d\ds? | 'n'
    | [+-]?\d+(?:[.,:/]\d+)+(?:-{_WORD})*
    | {_WORD}(?:[-/_]{_WORD})*
    | \.{{2,}} | -{{2,}} | [!?]+
    | \S
    """,
    re.VERBOSE,
)


def caption_words(caption: str) -> list[str]:
    """Split a caption into lowercase words. Contractions are split ("man 's"), hyphens kept, punctuation removed.

    For usual captions this equals Stanford's PTBTokenizer, which needs Java, followed by coco-caption's list of
    punctuation. It knows fewer abbreviations and no web addresses.
    """
    text = caption.lower().translate(_TYPOGRAPHIC)
    text = _TWO_WORDS.sub(lambda match: " ".join(part for part in match.groups() if part), text)
    text = _CONTRACTION.sub(r" \1", text)
    words = (_BRACKETS.get(word, word) for word in _TOKEN.findall(text))
    return [word for word in words if word not in _DROPPED and word.strip(".")]


def tokenize_captions(captions: Iterable[str]) -> list[str]:
    """Return captions with their words (see `caption_words`) separated by single spaces."""
    return [" ".join(caption_words(caption)) for caption in captions]


def count_ngrams(words: Sequence[str], max_order: int) -> list[Counter[tuple[str, ...]]]:
    """Count the n-grams of each order from 1 to `max_order`."""
    return [Counter(zip(*(words[start:] for start in range(order)), strict=False)) for order in range(1, max_order + 1)]


# coco-caption's constants against division by zero. They replace smoothing.
_SMALL = 1e-9
_TINY = 1e-15


def bleu(hypotheses: Sequence[str], references: References, max_order: int = 4) -> MetricResult:
    """Compute corpus BLEU from 0 to 1, with the tokens, closest reference length and constants of coco-caption.

    `details` holds `bleu_1` up to `bleu_{max_order}`. `score` and `items` are for the highest order.

    Reference: Papineni et al. 2002, section 2.3; the evaluation server of Chen et al. 2015 (COCO captions).
    """
    if max_order < 1:
        raise ValueError(f"`max_order` must be at least 1. Received: max_order={max_order}")
    hypotheses, references = check_pairs(hypotheses, references)
    rows = [_bleu_statistics(*pair, max_order) for pair in zip(hypotheses, references)]
    statistics = np.asarray(rows, dtype=np.float64)
    scores = _bleu_scores(statistics.sum(axis=0), max_order)
    return MetricResult(
        name=f"bleu_{max_order}",
        score=scores[-1],
        items=np.asarray([_bleu_scores(row, max_order)[-1] for row in statistics]),
        statistics=statistics,
        combine=lambda total: _bleu_scores(total, max_order)[-1],
        details={f"bleu_{order}": score for order, score in enumerate(scores, start=1)},
    )


def _bleu_statistics(hypothesis: str, references: list[str], max_order: int) -> list[int]:
    """Return length and closest reference length, then for each order the matching n-grams and all n-grams."""
    words = caption_words(hypothesis)
    reference_words = [caption_words(reference) for reference in references]
    closest = min((abs(len(other) - len(words)), len(other)) for other in reference_words)[1]
    limits = [Counter() for _ in range(max_order)]
    for other in reference_words:
        for limit, counts in zip(limits, count_ngrams(other, max_order)):
            limit |= counts
    matching = [(counts & limit).total() for counts, limit in zip(count_ngrams(words, max_order), limits)]
    guessed = [max(0, len(words) - order) for order in range(max_order)]
    return [len(words), closest, *matching, *guessed]


def _bleu_scores(total: np.ndarray, max_order: int) -> list[float]:
    """Compute BLEU of each order from summed statistics."""
    length, reference_length = total[:2].tolist()
    precisions = (total[2 : 2 + max_order] + _TINY) / (total[2 + max_order :] + _SMALL)
    ratio = (length + _TINY) / (reference_length + _SMALL)
    brevity = math.exp(1 - 1 / ratio) if ratio < 1 else 1.0
    products = np.cumprod(precisions).tolist()
    return [brevity * product ** (1 / order) for order, product in enumerate(products, start=1)]


_MAX_ORDER = 4
_SIGMA = 6.0
_SCALE = 10.0


class _Vector(NamedTuple):
    weights: list[dict[tuple[str, ...], float]]  # for each order, n-gram -> term frequency × inverse document frequency
    norms: list[float]
    length: int  # in bigrams, as the reference implementation counts


class CiderScorer:
    """CIDEr-D with document frequencies that are computed once.

    Intended for rewards in training: the frequencies come from the whole corpus, and each call scores one batch. The
    vectors of the references are cached (about 5 kB each).

    Args:
        reference_corpus: the references of every item. Each item counts as one document.

    Example:
        scorer = CiderScorer(training_captions)
        rewards = scorer.score(sampled_captions, captions_of_the_batch).items

    Reference: Vedantam et al. 2015, equations 1 to 3, in the D variant of their section 8.
    """

    def __init__(self, reference_corpus: References):
        documents = check_references(reference_corpus)
        if not documents:
            raise ValueError("`reference_corpus` must hold at least one item. Received: none")
        frequencies = Counter()
        for references in documents:
            orders = [counts for text in references for counts in count_ngrams(caption_words(text), _MAX_ORDER)]
            frequencies.update({gram for counts in orders for gram in counts})
        self._rarest = math.log(len(documents))
        # An n-gram in one document has the same weight as one in no document, so it needs no entry.
        self._weights = {
            gram: self._rarest - math.log(frequency) for gram, frequency in frequencies.items() if frequency > 1
        }
        self._reference_vectors: dict[str, _Vector] = {}

    def score(self, hypotheses: Sequence[str], references: References) -> MetricResult:
        """Compute CIDEr-D from 0 to 10: the mean over items of the mean similarity to each reference."""
        hypotheses, references = check_pairs(hypotheses, references)
        items = []
        for hypothesis, texts in zip(hypotheses, references):
            for text in texts:
                if text not in self._reference_vectors:
                    self._reference_vectors[text] = self._vector(text)
            vector = self._vector(hypothesis)
            total = sum(_similarity(vector, self._reference_vectors[text]) for text in texts)
            items.append(_SCALE * total / len(texts))
        return MetricResult.mean_of("cider", items)

    def _vector(self, text: str) -> _Vector:
        counts = count_ngrams(caption_words(text), _MAX_ORDER)
        weigh, rarest = self._weights.get, self._rarest
        weights = [{gram: count * weigh(gram, rarest) for gram, count in order.items()} for order in counts]
        norms = [math.sqrt(sum(weight * weight for weight in order.values())) for order in weights]
        return _Vector(weights, norms, counts[1].total())


def cider(hypotheses: Sequence[str], references: References) -> MetricResult:
    """Compute CIDEr-D from 0 to 10, with the document frequencies of the given references.

    This equals `Cider` of coco-caption and pycocoevalcap. Despite its name, that is the D variant, with clipped counts
    and a Gaussian length penalty of σ = 6. A corpus of one item scores 0, because every n-gram is in every document.
    """
    return CiderScorer(references).score(hypotheses, references)


def _similarity(hypothesis: _Vector, reference: _Vector) -> float:
    """Return the mean clipped cosine over orders, times the length penalty."""
    total = 0.0
    for weights, others, norm, other_norm in zip(
        hypothesis.weights, reference.weights, hypothesis.norms, reference.norms
    ):
        if norm and other_norm:
            shared = sum(min(weights[gram], others[gram]) * others[gram] for gram in weights.keys() & others.keys())
            total += shared / (norm * other_norm)
    difference = hypothesis.length - reference.length
    return total / _MAX_ORDER * math.exp(-(difference**2) / (2 * _SIGMA**2))
