import pytest
import tensorflow as tf

from attention_apps.applications.summarization.config import SummarizerConfig, SummaryOptions
from attention_apps.applications.summarization.reader import (
    MAX_TEXT_BYTES,
    TextReader,
    lead_sentences,
    read_text,
    sentence_spans,
)
from attention_apps.preprocessing.text import tokenize
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


def test_each_sentence_asked_for_is_read_on_its_own():
    reading = READER.read(LONG_TEXT, SummaryOptions(3))
    for source in reading.sources:
        tokens = tokens_of(source)
        assert tokens.count("￭.") == 1
        assert tokens[-1] == "￭."


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
    texts = [
        TEXT,
        LONG_TEXT,
        "Bob sees Paris by night.",
        "word " * 70,
        "A title\n \n" + "Word " * 27 + "two.\n\nMore. " * 9,
    ]
    source, context = READER.in_graph(tf.constant(texts))
    for row, text in zip(source["tokens"].numpy(), texts, strict=True):
        (expected,) = READER.read(text, SummaryOptions()).sources
        assert [token.decode() for token in row if token] == tokens_of(expected)
    assert context["status"].numpy().tolist() == [b"ok", b"cut", b"ok", b"cut", b"cut"]


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


def test_sentences_go_from_one_beginning_to_the_next():
    assert sentence_spans([True, False, True, True, False]) == [(0, 2), (2, 3), (3, 5)]
    assert sentence_spans([]) == []


def test_the_first_passage_has_the_whole_sentences_that_fit():
    def places(text, max_length):
        reader = TextReader(SummarizerConfig(max_source_length=max_length))
        return [source.place for source in reader.read(text, SummaryOptions()).sources]

    assert places("It rains. He ran.", 100) == [(0, 6)]
    assert places("Alice sees Bob. " * 9, 11) == [(0, 8)]
    assert places("Word " + "word " * 23 + "end. Yes.", 10) == [(0, 10)]
    assert places("", 100) == []


def chosen(text, count, max_length=100):
    read = read_text(text, tokenize)
    return [" ".join(read.shown.tokens[start:end]) for start, end in lead_sentences(read, max_length, count)]


def paragraph(name, count):
    return " ".join(f"Sentence {number} of {name} is here." for number in range(count))


def test_one_sentence_is_chosen_from_each_part_of_a_text():
    text = paragraph("one", 6)
    assert chosen(text, 2) == ["Sentence 0 of one is here .", "Sentence 3 of one is here ."]
    assert len(chosen(text, 6)) == len(chosen(text, 9)) == 6


def test_parts_are_whole_paragraphs_if_there_are_enough():
    text = "\n\n".join([paragraph("one", 9), paragraph("two", 1), paragraph("three", 1), paragraph("four", 5)])
    assert chosen(text, 2) == ["Sentence 0 of one is here .", "Sentence 0 of three is here ."]
    assert [line.split()[3] for line in chosen(text, 4)] == ["one", "two", "three", "four"]
    assert len(chosen(text, 5)) == 5


def test_sentences_of_few_words_are_passed_over_unless_there_is_nothing_else():
    assert chosen("Yes. " + paragraph("one", 1) + "\n\nNo!\n\n" + paragraph("two", 1), 2) == [
        "Sentence 0 of one is here .",
        "Sentence 0 of two is here .",
    ]
    assert chosen("One two. Three four. Five.", 2) == ["One two ."]


def test_a_long_sentence_that_is_chosen_is_truncated():
    assert chosen("word " * 70, 2, max_length=10) == [" ".join(["word"] * 10)]


def test_a_sentence_ends_with_its_paragraph():
    read = read_text("A title without a stop\r\n \t\nand the text.", tokenize)
    assert (read.sentences, read.paragraphs) == ([(0, 5), (5, 9)], [0, 1])
