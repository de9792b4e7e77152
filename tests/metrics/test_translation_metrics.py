import pytest
import sacrebleu
from hypothesis import given, settings

from attention_apps.metrics import chrf, sacre_bleu
from tests.metrics.corpora import EDGE_HYPOTHESES, EDGE_REFERENCES, random_corpus, single_pairs


@settings(deadline=None)
@given(single_pairs)
def test_equals_sacrebleu_on_random_text(corpus):
    hypotheses, references = map(list, zip(*corpus))
    expected = sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert sacre_bleu(hypotheses, references).score == pytest.approx(expected, abs=1e-9)


def test_equals_sacrebleu_with_several_references():
    hypotheses, references = random_corpus(60, 3)
    expected = sacrebleu.corpus_bleu(hypotheses, list(zip(*references))).score
    assert sacre_bleu(hypotheses, references).score == pytest.approx(expected, abs=1e-9)


def test_items_equal_sacrebleu_for_sentences():
    items = sacre_bleu(EDGE_HYPOTHESES, EDGE_REFERENCES).items
    for item, hypothesis, references in zip(items, EDGE_HYPOTHESES, EDGE_REFERENCES):
        assert item == pytest.approx(sacrebleu.sentence_bleu(hypothesis, references).score, abs=1e-9)


def test_the_signature_is_that_of_sacrebleu():
    hypotheses, references = random_corpus(5, 2)
    metric = sacrebleu.BLEU()
    metric.corpus_score(hypotheses, list(zip(*references)))
    assert sacre_bleu(hypotheses, references).details["signature"] == str(metric.get_signature())


@settings(deadline=None)
@given(single_pairs)
def test_chrf_equals_sacrebleu_on_random_text(corpus):
    hypotheses, references = map(list, zip(*corpus))
    expected = sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert chrf(hypotheses, references).score == pytest.approx(expected, abs=1e-9)


def test_chrf_equals_sacrebleu_with_several_references():
    hypotheses, references = random_corpus(60, 3)
    expected = sacrebleu.corpus_chrf(hypotheses, list(zip(*references))).score
    assert chrf(hypotheses, references).score == pytest.approx(expected, abs=1e-9)


def test_chrf_items_equal_sacrebleu_for_sentences():
    items = chrf(EDGE_HYPOTHESES, EDGE_REFERENCES).items
    for item, hypothesis, references in zip(items, EDGE_HYPOTHESES, EDGE_REFERENCES):
        assert item == pytest.approx(sacrebleu.sentence_chrf(hypothesis, references).score, abs=1e-9)


def test_the_signature_says_how_it_was_computed():
    assert (
        chrf(["a b"], ["a b"]).details["signature"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")
    )
