from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.applications.recognition.transcript import SpokenWord
from attention_apps.applications.recognition.word_times import letter_spans, spoken_words

ALL_LOUD = np.ones(300, bool)


def find_words(rows):
    """The words of rows of letters, spans, confidences, loud frames and seconds, padded to one batch."""
    letters, spans, confidences, loud, seconds = zip(*rows, strict=True)
    size, frames = max(1, *map(len, letters)), max(map(len, loud))
    outputs = spoken_words(
        tf.constant([[*row] + [""] * (size - len(row)) for row in letters]),
        tf.constant([[*row] + [[0, 1]] * (size - len(row)) for row in spans], tf.int32),
        tf.constant([[*row] + [0.0] * (size - len(row)) for row in confidences]),
        0.04,
        tf.constant([np.pad(row, (0, frames - len(row)), constant_values=True) for row in loud], tf.bool),
        tf.constant([len(row) for row in loud]),
        tf.constant(seconds, tf.float64),
    )
    names = ("words", "start", "end", "word_confidence")
    table = zip(*(outputs[name].numpy().tolist() for name in names), strict=True)
    return [[SpokenWord(word.decode(), *rest) for word, *rest in zip(*row, strict=True) if word] for row in table]


def row_of(letters, spans, loud=ALL_LOUD, seconds=3.0, confidences=None):
    return letters, spans, confidences or [1.0] * len(letters), loud, seconds


def words_of(*given, **named):
    return find_words([row_of(*given, **named)])[0]


def between(first, end):
    loud = np.zeros(300, bool)
    loud[first:end] = True
    return loud


def test_words_are_what_is_between_spaces():
    spans = [[place, place + 1] for place in range(9)]
    assert [word.word for word in words_of("  ÄB  C  ", spans)] == ["ÄB", "C"]
    assert words_of("", []) == words_of("   ", spans[:3]) == []


def test_sub_words_with_a_space_in_front_begin_a_word():
    spans = [[place, place + 1] for place in range(6)]
    words = words_of([" Go", "ing", " ", "on", ",", " so"], spans)
    assert [word.word for word in words] == ["Going", "on,", "so"]


def test_punctuation_has_no_time_of_its_own():
    tokens = [' "', "So", ",", " -"]
    so, dash = words_of(tokens, [[2, 3], [25, 26], [60, 61], [65, 66]], between(100, 110))
    assert (so.word, dash.word) == ('"So,', "-")
    assert so[1:3] == pytest.approx((1.0, 1.1))
    assert dash.start >= 1.1


def test_a_word_lasts_as_long_as_the_sound_around_its_letters():
    (word,) = words_of("AB", [[25, 26], [33, 34]], between(90, 150))
    assert word[1:3] == pytest.approx((0.9, 1.5))


def test_letters_before_the_sound_do_not_count():
    (word,) = words_of("AB", [[20, 21], [36, 37]], between(100, 130))
    assert word[1:3] == pytest.approx((1.0, 1.3))


def test_the_sound_of_a_neighbor_is_not_taken():
    words = words_of("A B", [[20, 22], [25, 26], [30, 31]])
    assert words[0].end == words[1].start == pytest.approx((0.88 + 1.2) / 2, abs=0.02)
    assert words[0].start == pytest.approx(0.8 - 0.35, abs=0.01)


def test_times_stay_within_the_recording():
    (word,) = words_of("A", [[70, 80]], seconds=2.9)
    assert 0 <= word.start < word.end <= np.float32(2.9)


def test_where_there_are_no_levels_the_letters_alone_say_when():
    (word,) = words_of("A", [[1, 3]], loud=np.zeros(0, bool), seconds=0.2)
    assert word[1:3] == pytest.approx((0.04, 0.12))


def test_confidence_is_the_geometric_mean_over_the_letters():
    (word,) = words_of("AB", [[1, 2], [3, 4]], confidences=[0.9, 0.4])
    assert word.confidence == pytest.approx(0.6)


def test_a_recording_has_the_same_words_in_any_company():
    random = np.random.default_rng(0)
    rows = []
    for _ in range(40):
        letters = "".join(random.choice(list("ABÜ  "), int(random.integers(0, 12))))
        ends = np.sort(random.integers(0, 60, (2, len(letters))), axis=1)
        spans = [[first, first + 1 + last] for first, last in zip(ends[0], ends[1] % 3, strict=True)]
        frames = int(random.integers(5, 250))
        loud = np.cumsum(random.random(frames) < random.choice([0.03, 0.3])) % 2 == 1
        rows.append(row_of(letters, spans, loud, frames / 100, random.random(len(letters)).tolist()))
    together = find_words(rows)
    assert sum(map(len, together)) > 50
    for row, words in zip(rows[:12], together, strict=False):
        alone = find_words([row])[0]
        assert [word[:3] for word in alone] == [word[:3] for word in words]
        assert [word.confidence for word in alone] == pytest.approx([word.confidence for word in words])
        assert all(0 <= word.start <= word.end <= np.float32(row[4]) for word in words)
        assert all(left.end <= right.start for left, right in pairwise(words))


def test_without_an_alignment_attention_says_where_letters_are_and_never_goes_back():
    attention = np.stack([np.eye(9)[[2, 5, 4, 7]]] * 2)
    alignment = np.random.default_rng(0).integers(0, 7, (2, 4, 2))
    spans = letter_spans(tf.constant(alignment, tf.int32), tf.constant([True, False]), tf.constant(attention)).numpy()
    np.testing.assert_array_equal(spans[0], alignment[0])
    assert spans[1].tolist() == [[2, 3], [5, 6], [5, 6], [7, 8]]
