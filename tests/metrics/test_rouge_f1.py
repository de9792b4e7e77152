import pytest
from hypothesis import given, settings
from rouge_score.rouge_scorer import RougeScorer

from attention_apps.metrics import rouge
from tests.metrics.corpora import EDGE_HYPOTHESES, EDGE_REFERENCES, pairs

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


def test_edge_cases():
    items = rouge(EDGE_HYPOTHESES, EDGE_REFERENCES, kind="1").items
    assert items[0] == 0
    assert items[1] == items[3] == 1


def test_an_unknown_kind_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"`kind` must be one of \['1', '2', 'l'\]. Received: kind='rouge3'"):
        rouge(["a"], ["a"], kind="rouge3")
