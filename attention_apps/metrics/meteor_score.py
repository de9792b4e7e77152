"""METEOR without Java and without WordNet."""

from collections.abc import Sequence

from attention_apps.metrics.caption_tokenizer import caption_words
from attention_apps.metrics.metric_result import MetricResult
from attention_apps.metrics.stemming import CachedStemmer
from attention_apps.metrics.text_pairs import References, check_pairs


class _NoSynonyms:
    """Stands in for nltk's WordNet reader and knows no synonym of any word."""

    def synsets(self, word: str) -> list:
        return []


def meteor(hypotheses: Sequence[str], references: References) -> MetricResult:
    """METEOR from 0 to 1 by nltk, exact and stem matches: the mean over items; the best reference counts.

    It is the formula of 2007 (α 0.9, β 3, γ 0.5) on coco-caption's words. It is not the METEOR 1.5 of caption
    papers, which needs Java, also matches synonyms and paraphrases, weighs function words less and has tuned
    parameters: the two are not comparable.

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
