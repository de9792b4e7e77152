import pytest
import tensorflow as tf

from attention_apps.applications.compression.config import CompressorConfig
from attention_apps.applications.compression.reader import (
    MAX_EXPORTED_BYTES,
    MAX_EXPORTED_SENTENCES,
    SentenceReader,
)
from attention_apps.applications.summarization.config import SummaryOptions
from tests.applications.summarizers import LONG_TEXT, TEXT

READER = SentenceReader(CompressorConfig(max_source_length=12))


def sentences_of(text, sentences=None):
    options = SummaryOptions(sentences)
    return [[token.decode() for token in source.tensors["tokens"]] for source in READER.read(text, options).sources]


def test_each_sentence_is_a_source():
    assert sentences_of("Alice sees Bob. It rains.") == [["Alice", "sees", "Bob", "￭."], ["It", "rains", "￭."]]


def test_a_long_sentence_is_cut():
    lengths = [len(sentence) for sentence in sentences_of(" ".join(["word"] * 25))]
    assert lengths == [12, 12, 1]
    sources = READER.read("Word " + "word " * 23 + "end. Yes.", SummaryOptions()).sources
    assert [source.place for source in sources] == [(0, 12), (12, 24), (24, 26), (26, 28)]


def test_as_many_sentences_as_are_asked_for_from_the_first_on():
    assert sentences_of(TEXT, 1) == sentences_of(TEXT)[:1]
    first, second = sentences_of(LONG_TEXT, 2)
    assert first == sentences_of(LONG_TEXT)[0]
    assert second in sentences_of(LONG_TEXT)


@pytest.mark.parametrize("text", ["", " ", "Too short", "'" * 1000])
def test_there_is_nothing_to_answer_in_a_short_text(text):
    assert sentences_of(text) == []


def test_what_is_not_a_text_is_rejected():
    with pytest.raises(TypeError, match="must be a string or bytes. Received: int"):
        READER.read(5, SummaryOptions())


def test_the_graph_reads_the_same_sentences():
    texts = [LONG_TEXT, "", TEXT]
    source, context = READER.in_graph(tf.constant(texts))
    *rows, extra = ([token.decode() for token in row if token] for row in source["tokens"].numpy())
    assert rows == sentences_of(LONG_TEXT) + sentences_of(TEXT)
    assert extra == ["."]
    counts = [context["rows"].numpy().tolist().count(number) for number in range(3)]
    assert counts == [len(sentences_of(text)) for text in texts]
    assert context["status"].numpy().tolist() == [b"ok", b"blank", b"ok"]


def test_the_graph_reads_the_first_sentences_of_each_text():
    texts = ["One two three four. " * MAX_EXPORTED_SENTENCES, LONG_TEXT + " Ab." * 500, "a" * (MAX_EXPORTED_BYTES + 1)]
    source, context = READER.in_graph(tf.constant([*texts, TEXT]))
    assert context["status"].numpy().tolist() == [b"ok", b"cut", b"text too long", b"ok"]
    *rows, _ = ([token.decode() for token in row if token] for row in source["tokens"].numpy())
    cut = sentences_of(texts[1])[:MAX_EXPORTED_SENTENCES]
    assert rows == sentences_of(texts[0]) + cut + sentences_of(TEXT)
    assert context["tokens"].row_lengths().numpy()[1] == sum(map(len, cut))
