"""METEOR without Java and without WordNet."""

from collections.abc import Sequence

from attention_apps.metrics.caption_tokenizer import caption_words
from attention_apps.metrics.metric_result import MetricResult
from attention_apps.metrics.stemming import CachedStemmer
from attention_apps.metrics.text_pairs import References, check_pairs


class _NoSynonyms:
    """A replacement for nltk's WordNet reader that has no synonyms."""

    def synsets(self, word: str) -> list:
        return []


def meteor(hypotheses: Sequence[str], references: References) -> MetricResult:
    """Compute METEOR from 0 to 1 with nltk, with exact and stem matches: the mean over items of the best reference.

    This is the formula of 2007 (α 0.9, β 3, γ 0.5) on coco-caption's words. It is not comparable to METEOR 1.5 in
    captioning papers. That version needs Java, also matches synonyms and paraphrases, weights function words less and
    has tuned parameters.

    Reference: Lavie and Agarwal 2007, section 2.
    """
    from nltk.translate.meteor_score import meteor_score

    hypotheses, references = check_pairs(hypotheses, references)
    stemmer, no_synonyms = CachedStemmer(), _NoSynonyms()
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
