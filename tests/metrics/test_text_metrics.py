import jiwer
import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from nltk.translate.meteor_score import exact_match, meteor_score, stem_match
from rouge_score.rouge_scorer import RougeScorer

from attention_apps.metrics import (
    cer,
    chrf,
    compression_rate,
    meteor,
    rouge,
    sacre_bleu,
    token_f1,
    tokenize_captions,
    wer,
)
from tests.metrics.corpora import EDGE_HYPOTHESES, EDGE_REFERENCES, pairs, random_corpus, single_pairs


@settings(deadline=None)
@given(single_pairs)
def test_error_rates_equal_jiwer_on_random_text(corpus):
    hypotheses, references = map(list, zip(*corpus))
    for metric, process, figure in (
        (wer, jiwer.process_words, "wer"),
        (cer, jiwer.process_characters, "cer"),
    ):
        expected = process(references, hypotheses)
        result = metric(hypotheses, references)
        assert result.score == pytest.approx(getattr(expected, figure), abs=1e-9)
        for kind in ("substitutions", "deletions", "insertions"):
            assert result.details[kind] == getattr(expected, kind)
        items = [getattr(process(*pair), figure) for pair in zip(references, hypotheses)]
        np.testing.assert_allclose(result.items, items, atol=1e-9)


def test_the_corpus_rate_is_all_errors_over_all_words():
    result = wer(["a x c d", "", "e e"], ["a b c", "one two", "e"])
    assert result.details == {"substitutions": 1, "deletions": 2, "insertions": 2, "reference_length": 6}
    assert result.score == 5 / 6
    assert result.items.tolist() == [2 / 3, 1.0, 1.0]


def test_spaces_count_as_characters_but_their_number_does_not():
    assert cer(["ab"], ["a b"]).score == 1 / 3
    assert cer(["a\t\n b "], ["a b"]).score == wer(["a\t b"], [" a  b"]).score == 0


def test_characters_are_those_of_unicode():
    assert cer(["naive"], ["naïve"]).score == 1 / 5
    assert cer(["草"], ["🙂"]).details["reference_length"] == 1


def test_only_one_reference_is_taken():
    assert wer(["a"], [["a"]]).score == 0
    with pytest.raises(ValueError, match=r"`references\[0\]` must be one text for this metric. Received: 2 texts"):
        wer(["a"], [["a", "b"]])


KINDS = {"1": "rouge1", "2": "rouge2", "l": "rougeL"}


@pytest.mark.parametrize("stem", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=50)
@given(corpus=pairs)
def test_equals_rouge_score_on_random_text(kind, stem, corpus):
    hypotheses, references = map(list, zip(*corpus))
    scorer = RougeScorer([KINDS[kind]], use_stemmer=stem)
    expected = [scorer.score_multi(texts, text)[KINDS[kind]] for text, texts in zip(hypotheses, references)]
    result = rouge(hypotheses, references, kind=kind, stem=stem)
    assert result.items == pytest.approx([score.fmeasure for score in expected], abs=1e-9)
    assert result.score == pytest.approx(sum(result.items) / len(expected), abs=1e-9)
    assert result.details["recall"] == pytest.approx(sum(score.recall for score in expected) / len(expected))


def test_rouge_of_edge_cases():
    items = rouge(EDGE_HYPOTHESES, EDGE_REFERENCES, kind="1").items
    assert items[0] == 0
    assert items[1] == items[3] == 1


def test_an_unknown_kind_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"`kind` must be one of \['1', '2', 'l'\]. Received: kind='rouge3'"):
        rouge(["a"], ["a"], kind="rouge3")


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


def test_the_formula_of_meteor_for_a_partial_match():
    precision, recall, chunks, matches = 3 / 3, 3 / 4, 2, 3
    f_mean = precision * recall / (0.9 * precision + 0.1 * recall)
    expected = f_mean * (1 - 0.5 * (chunks / matches) ** 3)
    assert meteor(["a dog sleeps"], ["a dog never sleeps"]).score == pytest.approx(expected, abs=1e-12)


def test_an_empty_hypothesis_has_no_meteor():
    items = meteor(EDGE_HYPOTHESES, EDGE_REFERENCES).items
    assert items[0] == 0
    assert items[3] > 0.99


def naive_f1(hypothesis, reference):
    kept, left, common = hypothesis.split(), reference.split(), 0
    for word in kept:
        if word in left:
            left.remove(word)
            common += 1
    return 2 * common / (len(kept) + len(reference.split()))


@given(single_pairs)
def test_token_f1_equals_counting_one_by_one(corpus):
    result = token_f1(*map(list, zip(*corpus)))
    expected = [naive_f1(*pair) for pair in corpus]
    assert result.items == pytest.approx(expected, abs=1e-9)
    assert result.score == pytest.approx(sum(expected) / len(expected), abs=1e-9)


def test_a_repeated_word_counts_as_often_as_it_is_wanted():
    result = token_f1(["the the dog"], ["the dog runs away"])
    assert result.details == {"precision": 2 / 3, "recall": 2 / 4}
    assert result.score == pytest.approx(4 / 7)


def test_the_best_of_several_references_counts():
    assert token_f1(["a b"], [["c d", "a b"]]).score == 1


def test_an_empty_hypothesis_has_no_f1():
    assert token_f1([""], ["a"]).score == 0


def test_the_compression_rate_is_the_mean_share_of_words():
    result = compression_rate(["a b", ""], ["a b c d", "e"])
    assert result.items.tolist() == [0.5, 0.0]
    assert result.score == 0.25


def test_a_blank_source_is_refused():
    with pytest.raises(ValueError, match=r"`sources\[1\]` must not be blank. Received: ' '"):
        compression_rate(["a", "b"], ["a", " "])


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
