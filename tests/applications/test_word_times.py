import numpy as np
import pytest

from attention_apps.applications.word_times import geometric_mean, letter_spans, words_with_times

ALL_LOUD = np.ones(300, bool)


def words_of(letters, spans, loud=ALL_LOUD, seconds=3.0, confidences=None):
    confidences = np.ones(len(letters)) if confidences is None else np.array(confidences)
    return words_with_times(list(letters), np.array(spans).reshape(-1, 2), confidences, 0.04, loud, seconds)


def test_words_are_what_is_between_spaces():
    spans = [[place, place + 1] for place in range(9)]
    words = words_of("  AB  C  ", spans)
    assert [word.word for word in words] == ["AB", "C"]
    assert words_of("", []) == words_of("   ", spans[:3]) == []


def test_a_word_lasts_as_long_as_the_sound_around_its_letters():
    loud = np.zeros(300, bool)
    loud[90:150] = True
    (word,) = words_of("AB", [[25, 26], [33, 34]], loud)
    assert (word.start, word.end) == (0.9, 1.5)


def test_letters_before_the_sound_do_not_count():
    loud = np.zeros(300, bool)
    loud[100:130] = True
    (word,) = words_of("AB", [[20, 21], [36, 37]], loud)
    assert (word.start, word.end) == (1.0, 1.3)


def test_the_sound_of_a_neighbour_is_not_taken():
    words = words_of("A B", [[20, 22], [25, 26], [30, 31]])
    assert words[0].end == words[1].start == pytest.approx((0.88 + 1.2) / 2, abs=0.02)
    assert words[0].start == pytest.approx(0.8 - 0.35, abs=0.01)


def test_times_stay_within_the_recording():
    (word,) = words_of("A", [[70, 80]], seconds=2.9)
    assert 0 <= word.start < word.end <= 2.9


def test_where_there_are_no_levels_the_letters_alone_say_when():
    (word,) = words_of("A", [[1, 3]], loud=np.zeros(0, bool), seconds=0.2)
    assert (word.start, word.end) == (0.04, 0.12)


def test_confidence_is_the_geometric_mean_over_the_letters():
    (word,) = words_of("AB", [[1, 2], [3, 4]], confidences=[0.9, 0.4])
    assert word.confidence == pytest.approx(0.6)
    assert geometric_mean(np.zeros(0)) == 0


def test_without_an_alignment_attention_says_where_letters_are_and_never_goes_back():
    attention = np.eye(9)[[2, 5, 4, 7]]
    assert letter_spans(None, attention).tolist() == [[2, 3], [5, 6], [5, 6], [7, 8]]
    spans = np.array([[0, 1]])
    assert letter_spans(spans, attention) is spans
