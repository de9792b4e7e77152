import pytest
from hypothesis import given

from attention_apps.metrics import compression_rate, token_f1
from tests.metrics.corpora import single_pairs


def naive_f1(hypothesis, reference):
    kept, left, common = hypothesis.split(), reference.split(), 0
    for word in kept:
        if word in left:
            left.remove(word)
            common += 1
    return 2 * common / (len(kept) + len(reference.split()))


@given(single_pairs)
def test_equals_counting_one_by_one(corpus):
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


def test_an_empty_hypothesis_scores_nothing():
    assert token_f1([""], ["a"]).score == 0


def test_the_compression_rate_is_the_mean_share_of_words():
    result = compression_rate(["a b", ""], ["a b c d", "e"])
    assert result.items.tolist() == [0.5, 0.0]
    assert result.score == 0.25


def test_a_blank_source_is_refused():
    with pytest.raises(ValueError, match=r"`sources\[1\]` must not be blank. Received: ' '"):
        compression_rate(["a", "b"], ["a", " "])
