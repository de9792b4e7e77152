import numpy as np
import pytest
import tensorflow as tf

from attention_apps.constants import END, PADDING, START
from attention_apps.preprocessing.sub_words import SubWords
from attention_apps.preprocessing.vocabulary import Vocabulary

PIECES = ("▁t", "he", "▁the", "re", "▁there", "her", "<unused_77>", "▁", "t", "h", "e", "r", ".", "é")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(1, 256))


@pytest.fixture
def sub_words():
    return SubWords(Vocabulary([*BYTES, *PIECES]))


def ids_of(sub_words, *pieces):
    return [sub_words.vocabulary.tokens.index(piece) for piece in pieces]


def decode(sub_words, *pieces):
    return sub_words.decode(np.array(ids_of(sub_words, *pieces), "int32")).numpy().decode()


def test_pieces_are_joined_in_the_order_of_their_ids(sub_words):
    assert sub_words.encode("there her.") == ids_of(sub_words, "▁there", "▁", "her", ".")
    # "re" comes before "her", although "her" is the longest piece at its place.
    assert sub_words.encode("here") == ids_of(sub_words, "▁", "he", "re")


def test_white_space_of_any_length_is_one_space(sub_words):
    assert sub_words.encode("  the \n there ") == ids_of(sub_words, "▁the", "▁there")
    assert sub_words.encode(" ") == []


def test_characters_without_a_piece_are_bytes(sub_words):
    assert sub_words.encode("é€") == ids_of(sub_words, "▁", "é", "<0xE2>", "<0x82>", "<0xAC>")
    assert decode(sub_words, "▁", "é", "<0xE2>", "<0x82>", "<0xAC>") == "é€"


def test_one_leading_space_is_left_out(sub_words):
    assert decode(sub_words, "▁the", "▁", "▁there", ".") == "the  there."
    assert decode(sub_words, "▁", "▁the") == " the"
    assert decode(sub_words, "t", "▁the") == "t the"


def test_special_and_unused_tokens_are_silent(sub_words):
    (the, unused) = ids_of(sub_words, "▁the", "<unused_77>")
    assert sub_words.decode(np.array([START, the, unused, END, PADDING])) == b"the"
    assert unused not in sub_words.encode("<unused_77>")


def test_bytes_that_are_not_utf8_are_replaced(sub_words):
    assert decode(sub_words, "t", "<0xE2>", "t") == "t\ufffdt"


def test_every_text_comes_back(sub_words):
    for text in ("The ether.", "there, there", "naïve 日本語 😀"):
        assert sub_words.decode(np.array(sub_words.encode(text))).numpy().decode() == text


def test_a_graph_decodes_batches_of_beams(sub_words):
    the, there, dot = ids_of(sub_words, "▁the", "▁there", ".")
    graph = tf.function(sub_words.decode, input_signature=[tf.TensorSpec((None, None, None), tf.int32)])
    texts = graph(np.array([[[the, there, END], [dot, END, PADDING]]], "int32"))
    assert texts.numpy().tolist() == [[b"the there", b"."]]
    assert sub_words.spell(np.array([the, dot])).numpy().tolist() == [b" the", b"."]
