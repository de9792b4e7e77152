import pytest
import tensorflow as tf

from attention_apps.applications import OutputOptions, TranslatorConfig
from attention_apps.applications.translation.reader import (
    MAX_BYTES,
    MAX_EXPORTED_BYTES,
    MAX_EXPORTED_SENTENCES,
    TranslationReader,
)
from attention_apps.preprocessing.text import detokenize

READER = TranslationReader(TranslatorConfig(max_sentence_length=64))
TEXT = "Anna likes the tree. Bob sees 3,000 houses!\n\n12:30\nNo end"


def read(text):
    reading = READER.read(text, OutputOptions())
    return list(reading.sources), reading.shown


def words_of(source):
    return [word.decode() for word in source.tensors["tokens"]]


def test_a_text_is_read_sentence_by_sentence_and_line_by_line():
    sources, shown = read(TEXT)
    assert [source.place for source in sources] == [(0, 5), (5, 10), (10, 11), (11, 13)]
    assert words_of(sources[1]) == ["Bob", "sees", "3,000", "houses", "￭!"]
    assert [shown.line_of[source.place[0]] for source in sources] == [0, 0, 2, 3]
    assert shown.tokens[:6] == ["Anna", "likes", "the", "tree", ".", "Bob"]


def test_there_is_nothing_to_translate_without_letters():
    sources, _ = read(TEXT)
    assert [source.tensors is None for source in sources] == [False, False, True, False]


def test_long_sentences_and_long_words_are_cut():
    sources, _ = read("word " * 30 + "x" * 200)
    assert len(sources) > 3
    assert all(source.length <= 64 + 45 for source in sources)
    whole = b" ".join(word for source in sources for word in source.tensors["tokens"])
    assert detokenize(tf.constant([[whole]])).numpy()[0].decode() == "word " * 30 + "x" * 200


@pytest.mark.parametrize("text", ["", " \n \n", b"", "\u200b"])
def test_a_blank_text_has_no_sentences(text):
    assert read(text)[0] == []


def test_bytes_that_are_not_utf_8_are_replaced():
    (source,), _ = read(b"one \xff two")
    assert words_of(source) == ["one", "\ufffd", "two"]


@pytest.mark.parametrize("item", [5, None, ["a text"]])
def test_what_is_not_a_text_is_rejected(item):
    with pytest.raises(TypeError, match="A text must be a string or bytes. Received: "):
        read(item)


def test_a_text_that_is_too_long_is_rejected():
    with pytest.raises(ValueError, match="A text must have at most 1,048,576 bytes. Received: 1,048,577 bytes"):
        read("é" * (MAX_BYTES // 2) + "x")


def test_a_megabyte_is_read():
    sources, _ = read("Anna likes the tree. " * (MAX_BYTES // 21))
    assert len(sources) == MAX_BYTES // 21


def test_the_graph_reads_the_same_sentences():
    texts = [TEXT, "", "Anna. " * 3, "word " * 40]
    source, context = READER.in_graph(tf.constant(texts))
    expected = [(row, source) for row, text in enumerate(texts) for source in read(text)[0]]
    assert context["text_of"].numpy().tolist() == [row for row, _ in expected]
    for row, (_, one) in zip(source["tokens"].numpy()[:-1], expected, strict=True):
        if one.tensors is not None:
            assert [word.decode() for word in row if word] == words_of(one)
    assert context["status"].numpy().tolist() == [b"ok", b"blank", b"ok", b"ok"]


def test_the_graph_says_what_became_of_a_text():
    texts = ["", "One. " * 99, "a" * (MAX_EXPORTED_BYTES + 1), "Fine."]
    _, context = READER.in_graph(tf.constant(texts))
    assert context["status"].numpy().tolist() == [b"blank", b"cut", b"text too long", b"ok"]
    assert context["text_of"].numpy().tolist() == [1] * MAX_EXPORTED_SENTENCES + [3]


@pytest.mark.parametrize("texts", [[], [""], ["", " \n"]])
def test_the_graph_reads_batches_without_any_word(texts):
    source, context = READER.in_graph(tf.constant(texts, tf.string))
    assert len(source["tokens"]) == 1
    assert context["status"].numpy().tolist() == [b"blank"] * len(texts)
