import time

import numpy as np
import pytest
from hypothesis import given, settings
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider

from attention_apps.metrics import CiderScorer, bleu, caption_words, cider, tokenize_captions
from tests.metrics.corpora import EDGE_HYPOTHESES, EDGE_REFERENCES, pairs, random_corpus


# The words are those that Stanford's PTBTokenizer and coco-caption's list of punctuation gave.
@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("A man's T-shirt doesn't fit; he can't go!", "a man 's t-shirt does n't fit he ca n't go"),
        ("He cannot, won't: I'm, we've, they'll, she'd", "he can not wo n't i 'm we 've they 'll she 'd"),
        ("\"Hello\" said the cat... it's 5 o'clock -- 10:30", "hello said the cat it 's 5 o'clock 10:30"),
        ("\u201cquoted\u201d it\u2019s \u2013 dash \u2014 em \u2026", "quoted it 's dash em"),
        ("dogs' toys and/or cats & mice, 50% for $5.00", "dogs toys and/or cats & mice 50 % for $ 5.00"),
        ("the U.S. flag at 3 a.m. by Mr. Smith", "the u.s. flag at 3 a.m. by mr. smith"),
        (
            "black-and-white two - tone (really) [so]",
            "black-and-white two tone -lrb- really -rrb- -lsb- so -rsb-",
        ),
        ("A dog 's toy .", "a dog 's toy"),
        ("I'm gonna go, rock 'n' roll", "i 'm gon na go rock 'n' roll"),
        ("你好 日本 émigré", "你好 日本 émigré"),
        ("Wow!! Really?!", "wow !! really ?!"),
    ],
)
def test_words_are_those_of_coco_caption(caption, words):
    assert caption_words(caption) == words.split()


@pytest.mark.parametrize("caption", ["", "  \n", ".", "...", "?!.,;"[2:], "\" ' `"])
def test_nothing_is_left_of_punctuation(caption):
    assert caption_words(caption) == []


def test_captions_are_joined_by_single_spaces():
    assert tokenize_captions(["A  dog,\nrunning.", ""]) == ["a dog running", ""]


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


def assert_cider_equals_coco(hypotheses, references):
    results = {index: tokenize_captions([text]) for index, text in enumerate(hypotheses)}
    truths = {index: tokenize_captions(texts) for index, texts in enumerate(references)}
    score, items = Cider().compute_score(truths, results)
    result = cider(hypotheses, references)
    assert result.score == pytest.approx(score, abs=1e-9)
    np.testing.assert_allclose(result.items, items, atol=1e-9)


@settings(deadline=None)
@given(pairs)
def test_cider_equals_coco_caption_on_random_text(corpus):
    assert_cider_equals_coco(*map(list, zip(*corpus)))


def test_cider_equals_coco_caption_on_a_corpus_and_on_edge_cases():
    assert_cider_equals_coco(*random_corpus(60, 5))
    assert_cider_equals_coco(EDGE_HYPOTHESES, EDGE_REFERENCES)


def test_a_batch_is_scored_with_the_frequencies_of_the_corpus():
    hypotheses, references = random_corpus(30, 4)
    scorer = CiderScorer(references)
    whole = scorer.score(hypotheses, references).items
    part = scorer.score(hypotheses[10:13], references[10:13]).items
    np.testing.assert_array_equal(part, whole[10:13])


def test_references_outside_the_corpus_can_be_scored():
    scorer = CiderScorer([["a dog runs"], ["a man sleeps"]])
    result = scorer.score(["a cat jumps high", "two birds"], ["a cat jumps high", "three bees"])
    assert result.items[0] > 5
    assert result.items[1] == 0


@pytest.mark.slow
def test_a_training_step_of_rewards_takes_milliseconds():
    _, corpus = random_corpus(500, 5)
    hypotheses, _ = random_corpus(192, 1, seed=1)
    references = [item for item in corpus[:32] for _ in range(6)]
    scorer = CiderScorer(corpus)
    seconds = []
    for _ in range(5):
        start = time.process_time()
        scorer.score(hypotheses, references)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.1  # some 15 ms, with room for a slow machine


def test_an_empty_corpus_is_refused():
    with pytest.raises(ValueError, match=r"`reference_corpus` must hold at least one item"):
        CiderScorer([])
