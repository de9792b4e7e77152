import time

import numpy as np
import pytest
from hypothesis import given, settings
from pycocoevalcap.cider.cider import Cider

from attention_apps.metrics import CiderScorer, cider, tokenize_captions
from tests.metrics.corpora import EDGE_HYPOTHESES, EDGE_REFERENCES, pairs, random_corpus


def assert_equals_coco(hypotheses, references):
    results = {index: tokenize_captions([text]) for index, text in enumerate(hypotheses)}
    truths = {index: tokenize_captions(texts) for index, texts in enumerate(references)}
    score, items = Cider().compute_score(truths, results)
    result = cider(hypotheses, references)
    assert result.score == pytest.approx(score, abs=1e-9)
    np.testing.assert_allclose(result.items, items, atol=1e-9)


@settings(deadline=None)
@given(pairs)
def test_equals_coco_caption_on_random_text(corpus):
    assert_equals_coco(*map(list, zip(*corpus)))


def test_equals_coco_caption_on_a_corpus_and_on_edge_cases():
    assert_equals_coco(*random_corpus(60, 5))
    assert_equals_coco(EDGE_HYPOTHESES, EDGE_REFERENCES)


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
