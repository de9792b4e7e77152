import pytest
from hypothesis import given, settings
from nltk.translate.meteor_score import exact_match, meteor_score, stem_match

from attention_apps.metrics import meteor, tokenize_captions
from tests.metrics.corpora import EDGE_HYPOTHESES, EDGE_REFERENCES, pairs


class NoSynonyms:
    def synsets(self, word):
        return ()


@settings(deadline=None)
@given(pairs)
def test_equals_nltk_on_random_text(corpus):
    hypotheses, references = map(list, zip(*corpus))
    result = meteor(hypotheses, references)
    expected = [
        meteor_score([text.split() for text in tokenize_captions(texts)], hypothesis.split(), wordnet=NoSynonyms())
        for hypothesis, texts in zip(tokenize_captions(hypotheses), references)
    ]
    assert result.items == pytest.approx(expected, abs=1e-9)
    assert result.score == pytest.approx(sum(expected) / len(expected), abs=1e-9)


def test_stems_match():
    assert exact_match(["running"], ["runs"])[0] == []
    assert stem_match(["running"], ["runs"])[0] == [(0, 0)]
    assert meteor(["running"], ["runs"]).score == pytest.approx(0.5)  # one match in one chunk


def test_the_formula_of_a_partial_match():
    precision, recall, chunks, matches = 3 / 3, 3 / 4, 2, 3
    f_mean = precision * recall / (0.9 * precision + 0.1 * recall)
    expected = f_mean * (1 - 0.5 * (chunks / matches) ** 3)
    assert meteor(["a dog sleeps"], ["a dog never sleeps"]).score == pytest.approx(expected, abs=1e-12)


def test_an_empty_hypothesis_scores_nothing():
    items = meteor(EDGE_HYPOTHESES, EDGE_REFERENCES).items
    assert items[0] == 0
    assert items[3] > 0.99
