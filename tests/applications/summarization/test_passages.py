import numpy as np

from attention_apps.applications.summarization.passages import choose_passages, cut_into_passages, sentence_spans

FOUR_EACH = [(place, place + 4) for place in range(0, 36, 4)]


def test_sentences_go_from_one_beginning_to_the_next():
    assert sentence_spans([True, False, True, True, False]) == [(0, 2), (2, 3), (3, 5)]
    assert sentence_spans([]) == []


def test_a_short_text_is_one_passage():
    assert cut_into_passages([(0, 3), (3, 6)], 100) == [(0, 6)]
    assert cut_into_passages([], 100) == cut_into_passages([], 100, count=0) == []


def test_passages_are_whole_sentences_within_the_limit():
    assert cut_into_passages(FOUR_EACH, 11) == [(0, 8), (8, 16), (16, 24), (24, 32), (32, 36)]


def test_a_sentence_beyond_the_limit_is_cut():
    assert cut_into_passages([(0, 25)], 10) == [(0, 10), (10, 20), (20, 25)]


def test_as_many_passages_as_are_asked_for_if_there_are_sentences():
    assert len(cut_into_passages(FOUR_EACH, 100, count=3)) == 3
    assert len(cut_into_passages([(0, 3)], 100, count=3)) == 1


def test_no_more_than_the_limit_is_read_at_once_however_few_passages_are_asked_for():
    assert all(end - start <= 8 for start, end in cut_into_passages(FOUR_EACH, 8, count=2))


def test_the_first_and_the_most_typical_passages_are_chosen_in_their_order():
    features = np.array([[0.0, 1.0], [1.0, 0.1], [-1.0, 0.0], [1.0, 0.2]])
    assert choose_passages(features, 1) == [0]
    assert choose_passages(features, 2) == [0, 3]
    assert choose_passages(features, 3) == [0, 1, 3]


def test_passages_of_zeros_do_no_harm():
    assert choose_passages(np.zeros((3, 2)), 2) == [0, 1]
