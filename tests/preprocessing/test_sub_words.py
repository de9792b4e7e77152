import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_apps.constants import END, PADDING, START
from attention_apps.preprocessing.sub_words import (
    BYTES,
    MAX_LETTERS,
    SubWords,
    WordPieces,
    learn_word_pieces,
    split_words,
)
from attention_apps.preprocessing.text import normalize
from attention_apps.preprocessing.vocabulary import Vocabulary

PIECES = ("▁t", "he", "▁the", "re", "▁there", "her", "<unused_77>", "▁", "t", "h", "e", "r", ".", "é")
ALL_BYTES_BUT_0 = tuple(f"<0x{byte:02X}>" for byte in range(1, 256))


@pytest.fixture
def sub_words():
    return SubWords(Vocabulary([*ALL_BYTES_BUT_0, *PIECES]))


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


WORD_PIECES = ("▁", "▁the", "▁there", "the", "re", "r", "e", "t", "h", "▁￭", ".", "é")


@pytest.fixture(scope="module")
def pieces():
    return WordPieces(Vocabulary([*BYTES, *WORD_PIECES]))


def segment(pieces, *words):
    tokens = pieces.sub_words.vocabulary.tokens
    return [[tokens[index] for index in row] for row in pieces.segment(tf.constant(words)).to_list()]


def round_trip(pieces, text):
    words = split_words([text])
    ids = words.with_values(pieces.segment(words.flat_values)).merge_dims(1, 2)
    return pieces.join(ids.to_tensor()).numpy()[0].decode()


def test_the_longest_piece_is_taken_from_the_left(pieces):
    assert segment(pieces, "there", "three", "the") == [["▁there"], ["▁", "t", "h", "re", "e"], ["▁the"]]
    assert segment(pieces, "ethere") == [["▁", "e", "the", "re"]]


def test_a_piece_never_reaches_into_the_next_word(pieces):
    assert segment(pieces, "th", "e") == [["▁", "t", "h"], ["▁", "e"]]


def test_characters_without_a_piece_are_spelled_in_bytes(pieces):
    assert segment(pieces, "é€") == [["▁", "é", "<0xE2>", "<0x82>", "<0xAC>"]]


def test_names_of_special_pieces_are_read_as_text(pieces):
    assert segment(pieces, "<0x41>")[0][:2] == ["▁", "<0x3C>"]
    assert segment(pieces, "<unk>")[0][:2] == ["▁", "<0x3C>"]


@pytest.mark.parametrize("words", [[], [""], ["", "the"]])
def test_words_without_letters_and_no_words_at_all(pieces, words):
    ids = pieces.segment(tf.constant(words, tf.string))
    assert ids.nrows() == len(words)


@pytest.mark.parametrize(
    "text",
    [
        "the there, (three) 3,000 U.S. dollars!",
        "Straße Łódź 日本語 🙂 <0xC3> <unk>",
        "'" * 100,
        "." * 100,
        "é" * 100,
        "a" * (2 * MAX_LETTERS) + ".",
        '"' + "b" * (MAX_LETTERS + 1) + '"',
    ],
)
def test_every_text_comes_back_from_word_pieces(pieces, text):
    assert round_trip(pieces, text) == text


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=60))
def test_any_text_comes_back_normalized(text):
    pieces = WordPieces(Vocabulary([*BYTES, *WORD_PIECES]))
    expected = normalize([text]).numpy()[0].decode().replace("\u2581", "_")
    assert round_trip(pieces, text) == expected


def test_long_words_are_cut_and_joined_again():
    (words,) = split_words(["x" * (2 * MAX_LETTERS + 3)]).to_list()
    assert [len(word.decode()) for word in words] == [MAX_LETTERS, MAX_LETTERS + 1, 4]  # with a joiner mark
    (words,) = split_words(["x" * MAX_LETTERS]).to_list()
    assert len(words) == 1


def test_a_graph_gives_the_same(pieces):
    words = tf.constant(["there", "x" * MAX_LETTERS, "é€", ""])
    graph = tf.function(pieces.segment, input_signature=[tf.TensorSpec([None], tf.string)])
    assert graph(words).to_list() == pieces.segment(words).to_list()


def test_padding_start_and_end_are_not_written(pieces):
    (ids,) = pieces.segment(tf.constant(["there"])).to_list()
    assert pieces.join(tf.constant([[START, *ids, END, PADDING]])).numpy().tolist() == [b"there"]


def test_bytes_that_are_no_text_do_no_harm(pieces):
    ids = [pieces.sub_words.vocabulary.encode([name])[0] for name in ("<0xC3>", "<0x0A>", "<0x41>")]
    assert pieces.join(tf.constant([ids])).numpy()[0].decode() == "\ufffd A"


def test_frequent_words_become_pieces():
    sentences = [["there", "was", "a", "tree", "￭."]] * 20 + [["three", "trees"]]
    vocabulary = learn_word_pieces(sentences, 300)
    assert {"▁there", "▁tree", "▁￭."} <= set(vocabulary.tokens)
    assert vocabulary.tokens[4:260] == BYTES
    assert len(vocabulary) <= 300
    assert [row[0] for row in segment(WordPieces(vocabulary), "there", "treed")] == ["▁there", "▁tree"]


def test_learning_is_the_same_each_time():
    sentences = [f"word{number} other{number % 7} more".split() for number in range(200)]
    assert learn_word_pieces(sentences, 320) == learn_word_pieces(sentences, 320)


def test_a_block_in_the_text_is_no_start_of_a_word():
    vocabulary = learn_word_pieces([["a▁b", "▁c"]] * 9, 300)
    assert not any("▁" in piece[1:] for piece in vocabulary.tokens)


@pytest.mark.parametrize("size", [100, 260])
def test_a_vocabulary_has_room_for_all_bytes(size):
    with pytest.raises(ValueError, match=f"`size` must be more than 260, for all bytes. Received: size={size}"):
        learn_word_pieces([["a"]], size)


def test_a_vocabulary_that_is_too_small_is_an_error():
    with pytest.raises(ValueError, match="`size` is too small. Received: size=265"):
        learn_word_pieces([list("abcdefghijklmnopqrstuvwxyz")], 265)


def test_a_vocabulary_of_another_kind_is_an_error():
    with pytest.raises(ValueError, match="A vocabulary of word pieces must have '▁'"):
        WordPieces(Vocabulary(["a", "b"]))


def test_french_elisions_are_words_of_their_own():
    words = split_words(["L'homme qu'il voit près d\u2019eau. I'm", "aujourd'hui, don't, l'", "x" * 41])
    assert [[word.decode() for word in row] for row in words.to_list()] == [
        ["L'￭", "homme", "qu'￭", "il", "voit", "près", "d\u2019￭", "eau", "￭.", "I'm"],
        ["aujourd'hui", "￭,", "don't", "￭,", "l", "￭'"],
        ["x" * 40, "￭x"],
    ]


def test_dropout_passes_over_pieces_but_spells_the_same_word():
    vocabulary = Vocabulary([*BYTES, "▁", "▁a", "b", "▁ab", "a", "bab", "▁abab"])
    pieces = WordPieces(vocabulary)
    cuts = {tuple(pieces.segment(tf.constant(["abab"]), 0.5, seed)[0].numpy().tolist()) for seed in range(30)}
    assert len(cuts) > 3
    assert {pieces.join(tf.constant([ids])).numpy()[0] for ids in cuts} == {b"abab"}
