import pytest
import tensorflow as tf

from attention_apps.applications.summarization.config import SummarizerConfig, SummaryOptions
from attention_apps.applications.summarization.reader import MAX_TEXT_BYTES, TextReader
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
