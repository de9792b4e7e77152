import pytest
import tensorflow as tf

from attention_apps.preprocessing import text
from attention_apps.preprocessing.extended_vocabulary import source_ids
from attention_apps.preprocessing.vocabulary import UNKNOWN, Vocabulary
from attention_apps.preprocessing.word_forms import (
    UNKNOWN_CLASS_IDS,
    UNKNOWN_CLASSES,
    inside_sentences,
    lowercase,
    restore_case,
    to_model_forms,
    unknown_class_ids,
)

VOCABULARY = Vocabulary([*UNKNOWN_CLASSES, "London", "the", "NASA", "flies", "iPhone", "to", "￭.", "'￭"])


def write(document, words):
    """What is spelled when the model writes `words`, given in their folded forms."""
    tokens = text.tokenize([document]).to_tensor("")
    folded = to_model_forms(VOCABULARY)
    _, ids = source_ids(lowercase(tokens), folded)
    known = dict(zip([token.decode() for token in lowercase(tokens)[0].numpy()], ids[0].numpy().tolist(), strict=True))
    token_ids = [[[known.get(word, folded.encode([word])[0]) for word in words]]]
    spelled, copied = restore_case(tf.constant(token_ids), ids, tokens, VOCABULARY)
    return [word.decode() for word in spelled.numpy()[0, 0]], copied.numpy()[0, 0].tolist()


def test_lowercase_knows_other_scripts_and_leaves_joiners():
    assert lowercase(tf.constant(["ÉTÉ", "￭-￭", "Ω"])).numpy().tolist() == [
        "été".encode(),
        "￭-￭".encode(),
        "ω".encode(),
    ]


def test_folding_keeps_ragged_rows():
    assert lowercase(tf.ragged.constant([["A"], [], ["B", "C"]])).to_list() == [[b"a"], [], [b"b", b"c"]]


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("42m", "<number>"),
        ("AT-X", "<UPPER>"),
        ("Zork", "<Title>"),
        ("zorking", "<-ing>"),
        ("zorked", "<-ed>"),
        ("zorks", "<-s>"),
        ("zorkly", "<-ly>"),
    ],
)
def test_unknown_words_have_a_kind(word, kind):
    assert unknown_class_ids(tf.constant([word])).numpy()[0] == UNKNOWN_CLASS_IDS[list(UNKNOWN_CLASSES).index(kind)]


def test_a_word_like_no_kind_is_unknown():
    assert unknown_class_ids(tf.constant(["zork", "日", ""])).numpy().tolist() == [UNKNOWN] * 3


def test_no_token_of_a_text_is_the_name_of_a_kind():
    tokens = text.tokenize([" ".join(UNKNOWN_CLASSES)]).to_list()[0]
    assert not {token.decode() for token in tokens} & set(UNKNOWN_CLASSES)


def test_the_kinds_have_the_ids_after_the_special_tokens():
    assert VOCABULARY.encode(UNKNOWN_CLASSES) == list(UNKNOWN_CLASS_IDS)


def test_a_word_the_source_lacks_has_its_usual_spelling_and_the_first_a_capital():
    assert write("Nothing of it here.", ["the", "nasa", "flies", "to", "london"])[0] == [
        *("The", "NASA", "flies", "to", "London")
    ]


def test_a_word_inside_a_sentence_is_spelled_as_in_the_source():
    assert write("We like The Hague and zork.", ["to", "the", "zork"])[0] == ["To", "The", "zork"]


def test_a_capital_at_the_beginning_of_a_sentence_says_nothing():
    assert write("Flies came. The end.", ["to", "flies", "the"])[0] == ["To", "flies", "the"]


def test_unknown_words_are_copied_as_they_are_read():
    words, copied = write("In it Qwertz met McZork.", ["to", "mczork", "qwertz"])
    assert words == ["To", "McZork", "Qwertz"]
    assert copied == [False, True, True]


def test_an_unknown_word_that_begins_a_sentence_keeps_its_spelling():
    assert write("Qwertz came.", ["to", "qwertz"])[0] == ["To", "Qwertz"]


def test_words_with_inner_capitals_do_not_get_another():
    assert write("Nothing.", ["iphone", "flies"])[0] == ["iPhone", "flies"]


def test_sentences_within_the_summary_and_quotes_begin_with_a_capital():
    assert write("Nothing.", ["'￭", "flies", "￭.", "the"])[0] == ["'￭", "Flies", "￭.", "The"]


def test_shouting_is_not_taken_over():
    assert write("It says LONDON and FLIES.", ["to", "flies", "london"])[0] == ["To", "flies", "London"]


def test_only_words_within_sentences_tell_their_case():
    tokens = text.tokenize(["A dog. The cat (Big) sat: On"]).to_tensor("")
    inside = inside_sentences(tokens).numpy()[0]
    assert [token.decode() for token in tokens.numpy()[0][inside]] == ["dog", "￭.", "cat", "(￭", "￭)", "sat", "￭:"]


def test_the_folded_vocabulary_has_the_same_ids():
    folded = to_model_forms(VOCABULARY)
    assert len(folded) == len(VOCABULARY)
    assert folded.encode(["london", "nasa", "<Title>"]) == VOCABULARY.encode(["London", "NASA", "<Title>"])
