import numpy as np
import pytest
import tensorflow as tf

from attention_apps.applications.summarization.config import SummarizerConfig, SummaryOptions
from attention_apps.applications.summarization.reader import (
    MAX_TEXT_BYTES,
    TextReader,
    choose_passages,
    cut_into_passages,
    sentence_spans,
)
from tests.applications.summarizers import LONG_TEXT, TEXT

READER = TextReader(SummarizerConfig(max_source_length=30))


def tokens_of(source):
    return [token.decode() for token in source.tensors["tokens"]]


def test_a_text_is_read_as_tokens():
    reading = READER.read(" Alice likes Bob's\tdog. ", SummaryOptions())
    (source,) = reading.sources
    assert tokens_of(source) == ["Alice", "likes", "Bob", "￭'s", "dog", "￭."]
    assert (source.place, source.length) == ((0, 6), 6)
    assert reading.shown.plain == "Alice likes Bob's dog."
    assert reading.shown.tokens == ["Alice", "likes", "Bob", "'s", "dog", "."]


@pytest.mark.parametrize("sentences", [None, 1])
def test_the_first_passage_of_a_long_text_is_read(sentences):
    (source,) = READER.read(LONG_TEXT, SummaryOptions(sentences)).sources
    assert source.place == (0, 26)


def test_all_passages_are_read_to_choose_from():
    sources = READER.read(LONG_TEXT, SummaryOptions(3)).sources
    assert len(sources) >= 3
    places = [source.place for source in sources]
    assert all(end - start <= 30 for start, end in places)
    assert [end for _, end in places[:-1]] == [start for start, _ in places[1:]]


@pytest.mark.parametrize("text", ["", " \n", "\u200b", "Word", "!!! ...", "'" * 1000])
def test_there_is_nothing_to_answer_in_a_short_text(text):
    assert list(READER.read(text, SummaryOptions()).sources) == []


def test_bytes_that_are_not_utf_8_are_replaced():
    (source,) = READER.read(b"one \xff two three four", SummaryOptions()).sources
    assert tokens_of(source) == ["one", "\ufffd", "two", "three", "four"]


@pytest.mark.parametrize("item", [5, None, ["a text"]])
def test_what_is_not_a_text_is_rejected(item):
    with pytest.raises(TypeError, match="must be a string or bytes. Received: "):
        READER.read(item, SummaryOptions())


def test_the_graph_reads_the_same_first_passage():
    texts = [TEXT, LONG_TEXT, "Bob sees Paris by night.", "word " * 70]
    source, context = READER.in_graph(tf.constant(texts))
    for row, text in zip(source["tokens"].numpy(), texts, strict=True):
        (expected,) = READER.read(text, SummaryOptions()).sources
        assert [token.decode() for token in row if token] == tokens_of(expected)
    assert context["status"].numpy().tolist() == [b"ok", b"cut", b"ok", b"cut"]


def test_the_graph_says_what_became_of_a_text():
    texts = ["", "Too short", "'" * 1000, "a" * (MAX_TEXT_BYTES + 1), "a b c d e"]
    source, context = READER.in_graph(tf.constant(texts))
    assert context["status"].numpy().tolist() == [b"blank", b"short", b"short", b"text too long", b"ok"]
    assert context["plain"].numpy()[1] == b"Too short"
    assert source["tokens"].shape == (5, 30)


@pytest.mark.parametrize("texts", [[], [""], ["", " "]])
def test_the_graph_reads_batches_without_any_word(texts):
    source, context = READER.in_graph(tf.constant(texts, tf.string))
    assert source["tokens"].shape == (len(texts), 1)
    assert context["status"].numpy().tolist() == [b"blank"] * len(texts)


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
