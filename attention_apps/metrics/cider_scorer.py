"""CIDEr-D: the similarity to each reference, with n-grams weighted by tf-idf."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from attention_apps.metrics.caption_tokenizer import caption_words
from attention_apps.metrics.metric_result import MetricResult
from attention_apps.metrics.ngrams import count_ngrams
from attention_apps.metrics.text_pairs import References, check_pairs, check_references

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
            frequencies.update({gram for text in references for counts in _counts(text) for gram in counts})
        self._rarest = math.log(len(documents))
        # An n-gram in one document has the same weight as one in no document, so it needs no entry.
        self._weights = {
            gram: self._rarest - math.log(frequency) for gram, frequency in frequencies.items() if frequency > 1
        }
        self._reference_vectors: dict[str, _Vector] = {}

    def score(self, hypotheses: Sequence[str], references: References) -> MetricResult:
        """Compute CIDEr-D from 0 to 10: the mean over items of the mean similarity to each reference."""
        hypotheses, references = check_pairs(hypotheses, references)
        return MetricResult.mean_of("cider", [self._score(*pair) for pair in zip(hypotheses, references)])

    def _score(self, hypothesis: str, references: list[str]) -> float:
        vector = self._vector(hypothesis)
        total = sum(_similarity(vector, self._reference_vector(reference)) for reference in references)
        return _SCALE * total / len(references)

    def _reference_vector(self, reference: str) -> _Vector:
        vector = self._reference_vectors.get(reference)
        if vector is None:
            vector = self._reference_vectors[reference] = self._vector(reference)
        return vector

    def _vector(self, text: str) -> _Vector:
        counts = _counts(text)
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


def _counts(text: str) -> list[Counter[tuple[str, ...]]]:
    return count_ngrams(caption_words(text), _MAX_ORDER)


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
