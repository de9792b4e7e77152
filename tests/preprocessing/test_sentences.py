import pytest
import tensorflow as tf

from attention_apps.preprocessing import text
from attention_apps.preprocessing.sentence_words import tokenize_sentence
from attention_apps.preprocessing.sentences import count_words, first_passage_lengths, piece_starts, sentence_starts

SENTENCES = [
    ["One dog ran.", "Another sat!", "Why?"],
    ["Mr. Smith of the U.S. Army left.", "J. R. Cole stayed."],
    ['He said: "Stop it."', "Then he left."],
    ["It cost 3.5 million.", "2021 was bad."],
    ["no end at all"],
    ["The site example. com is down ... for now."],
    ["... and so on.", "Really?!", "(Yes.)", "OK"],
    [],
]


def sentences_of(tokens, starts):
    """The sentences of each text."""
    found = []
    for row, begins in zip(tokens.to_list(), starts.to_list(), strict=True):
        sentences = []
        for token, begin in zip(row, begins, strict=True):
            sentences = [*sentences, [token]] if begin else [*sentences[:-1], [*sentences[-1], token]]
        found.append([line.decode() for line in text.detokenize(sentences).numpy()] if sentences else [])
    return found


def test_sentences_are_found_in_one_text_and_in_many():
    tokens = text.tokenize([" ".join(sentences) for sentences in SENTENCES])
    assert sentences_of(tokens, sentence_starts(tokens)) == SENTENCES
    for sentences in SENTENCES:
        tokens = text.tokenize([" ".join(sentences)])
        assert sentences_of(tokens, sentence_starts(tokens)) == [sentences]


def test_sentences_of_a_compressors_tokens_are_found():
    tokens = tokenize_sentence(['He doesn\'t pay "Inc. Ltd." $3,000. She does.'])
    assert sentences_of(tokens, sentence_starts(tokens)) == [['He doesn\'t pay "Inc. Ltd." $3,000.', "She does."]]


def test_chinese_sentences_are_found():
    tokens = text.tokenize(["这是测试。 我们在。"])
    assert sentences_of(tokens, sentence_starts(tokens)) == [["这是测试。", "我们在。"]]


def test_words_have_a_letter_or_a_digit():
    tokens = tf.ragged.constant([["a", "￭.", "42", "--", "日", "😀", "_"], [], ["½"]])
    assert count_words(tokens).numpy().tolist() == [3, 0, 1]


def test_sentences_beyond_a_length_are_cut():
    tokens = text.tokenize(["One two three four five. Six.", "", "Seven eight nine."])
    pieces = piece_starts(sentence_starts(tokens), 3)
    assert [[int(start) for start in row] for row in pieces.to_list()] == [
        [1, 0, 0, 1, 0, 0, 1, 0],
        [],
        [1, 0, 0, 1],
    ]


@pytest.mark.parametrize(("max_length", "lengths"), [(3, [3, 3, 0]), (6, [4, 6, 0]), (8, [8, 6, 0]), (9, [8, 9, 0])])
def test_the_first_passage_has_the_first_whole_sentences(max_length, lengths):
    tokens = text.tokenize(["One two three. Four five six.", "One two three four five. Six seven.", ""])
    found = first_passage_lengths(sentence_starts(tokens), max_length)
    assert found.numpy().tolist() == lengths


def test_a_graph_gives_the_same():
    texts = tf.constant([" ".join(sentences) for sentences in SENTENCES])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def graph(texts):
        return sentence_starts(text.tokenize(texts))

    assert graph(texts).to_list() == sentence_starts(text.tokenize(texts)).to_list()
    assert graph(tf.constant([], tf.string)).to_list() == []
