import numpy as np
import pytest

from attention_apps.applications.passages import choose_passages, count_words, cut_into_passages, find_sentences
from attention_apps.preprocessing import text


def tokens_of(document):
    return [token.decode() for token in text.tokenize([document]).to_list()[0]]


def sentences_of(document):
    tokens = tokens_of(document)
    return [text.detokenize([tokens[start:end]]).numpy()[0].decode() for start, end in find_sentences(tokens)]


@pytest.mark.parametrize(
    "sentences",
    [
        ["One dog ran.", "Another sat!", "Why?"],
        ["Mr. Smith of the U.S. Army left.", "J. R. Cole stayed."],
        ['He said: "Stop it."', "Then he left."],
        ["It cost 3.5 million.", "2021 was bad."],
        ["no end at all"],
        [],
    ],
)
def test_sentences_are_found(sentences):
    assert sentences_of(" ".join(sentences)) == sentences


def test_a_small_letter_does_not_begin_a_sentence():
    assert len(sentences_of("The site example. com is down ... for now.")) == 1


def test_sentences_of_other_scripts_are_found():
    assert len(sentences_of("这是一个测试。我们在这里。")) >= 1


def test_words_have_a_letter_or_a_digit():
    assert count_words(["a", "￭.", "42", "--", "日", "😀", "_"]) == 3


def test_a_short_text_is_one_passage():
    tokens = tokens_of("One two. Three four.")
    assert cut_into_passages(tokens, 100) == [(0, len(tokens))]


def test_passages_are_whole_sentences_within_the_limit():
    tokens = tokens_of("One two three. " * 9)
    passages = cut_into_passages(tokens, 11)
    assert passages == [(0, 8), (8, 16), (16, 24), (24, 32), (32, 36)]


def test_a_sentence_beyond_the_limit_is_cut():
    assert cut_into_passages(["word"] * 25, 10) == [(0, 10), (10, 20), (20, 25)]


def test_as_many_passages_as_are_asked_for_if_there_are_sentences():
    tokens = tokens_of("One two three. " * 9)
    assert len(cut_into_passages(tokens, 100, count=3)) == 3
    assert len(cut_into_passages(tokens_of("One two."), 100, count=3)) == 1


def test_the_first_and_the_most_typical_passages_are_chosen_in_their_order():
    features = np.array([[0.0, 1.0], [1.0, 0.1], [-1.0, 0.0], [1.0, 0.2]])
    assert choose_passages(features, 1) == [0]
    assert choose_passages(features, 2) == [0, 3]
    assert choose_passages(features, 3) == [0, 1, 3]


def test_passages_of_zeros_do_no_harm():
    assert choose_passages(np.zeros((3, 2)), 2) == [0, 1]
