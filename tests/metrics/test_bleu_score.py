import numpy as np
import pytest
from hypothesis import given, settings
from pycocoevalcap.bleu.bleu import Bleu

from attention_apps.metrics import bleu, tokenize_captions
from tests.metrics.corpora import EDGE_HYPOTHESES, EDGE_REFERENCES, pairs, random_corpus


def coco_bleu(hypotheses, references):
    results = {index: tokenize_captions([text]) for index, text in enumerate(hypotheses)}
    truths = {index: tokenize_captions(texts) for index, texts in enumerate(references)}
    return Bleu(4).compute_score(truths, results, verbose=0)


def assert_equals_coco(hypotheses, references):
    scores, items = coco_bleu(hypotheses, references)
    for order in range(1, 5):
        result = bleu(hypotheses, references, max_order=order)
        assert result.score == pytest.approx(scores[order - 1], abs=1e-9)
        np.testing.assert_allclose(result.items, items[order - 1], atol=1e-9)
    assert list(bleu(hypotheses, references).details.values()) == pytest.approx(scores, abs=1e-9)


@settings(deadline=None)
@given(pairs)
def test_equals_coco_caption_on_random_text(corpus):
    assert_equals_coco(*map(list, zip(*corpus)))


def test_equals_coco_caption_on_a_corpus_and_on_edge_cases():
    assert_equals_coco(*random_corpus(60, 5))
    assert_equals_coco(EDGE_HYPOTHESES, EDGE_REFERENCES)


def test_case_and_punctuation_do_not_count():
    assert bleu(["A man, running on the GRASS!"], ["a man running on the grass"]).score == pytest.approx(1)


def test_order_must_be_positive():
    with pytest.raises(ValueError, match=r"`max_order` must be at least 1. Received: max_order=0"):
        bleu(["a"], ["a"], max_order=0)
