import jiwer
import numpy as np
import pytest
from hypothesis import given, settings

from attention_apps.metrics import cer, wer
from tests.metrics.corpora import single_pairs


@settings(deadline=None)
@given(single_pairs)
def test_equals_jiwer_on_random_text(corpus):
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
