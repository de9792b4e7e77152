import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_apps.preprocessing import text
from attention_apps.preprocessing.text import detokenize, tokenize
from attention_apps.preprocessing.vocabulary import UNKNOWN, Vocabulary
from attention_apps.preprocessing.word_forms import (
    FIRST_CLASS,
    UNKNOWN_CLASS_IDS,
    UNKNOWN_CLASSES,
    TextCorpus,
    inside_sentences,
    lowercase,
    resolve,
    restore_case,
    source_ids,
    to_model_forms,
    tokens_of,
    unknown_class_ids,
)
from tests.serving.fresh_process import call_in_fresh_process

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


COPY_VOCABULARY = Vocabulary(["the", "dog", "and"])  # ids 4, 5, 6; copies from 7 on
SOURCE = tf.ragged.constant([["the", "Zorb", "and", "Quux", "Zorb"], [], ["Quux", "dog"]])

rows = st.lists(
    st.lists(st.sampled_from(["the", "dog", "Zorb", "Quux", "草", "zorb"]), max_size=6), min_size=1, max_size=4
)


def test_an_unknown_source_word_points_to_its_first_position():
    token_ids, extended_ids = source_ids(SOURCE, COPY_VOCABULARY)
    assert token_ids.numpy().tolist() == [[4, 3, 6, 3, 3], [0] * 5, [3, 5, 0, 0, 0]]
    assert extended_ids.numpy().tolist() == [[4, 8, 6, 10, 8], [0] * 5, [7, 5, 0, 0, 0]]
    assert token_ids.dtype == extended_ids.dtype == tf.int32


def test_resolving_spells_copies_as_the_source_does():
    token_ids = tf.constant([[1, 4, 8, 10, 2, 0], [5, 3, 2, 0, 0, 0], [7, 6, 7, 2, 0, 0]])
    tokens, copied = resolve(token_ids, SOURCE, COPY_VOCABULARY)
    assert tokens.numpy().tolist() == [
        [b"", b"the", b"Zorb", b"Quux", b"", b""],
        [b"dog", b"<unk>", b"", b"", b"", b""],
        [b"Quux", b"and", b"Quux", b"", b"", b""],
    ]
    assert copied.numpy().tolist() == (token_ids.numpy() >= 7).tolist()


def test_resolving_takes_beams_and_positions_beyond_the_source():
    token_ids = tf.constant([[[8, 5], [10, 6]], [[7, 4], [20, 4]], [[7, 8], [9, 30]]])
    tokens, copied = resolve(token_ids, SOURCE, COPY_VOCABULARY)
    assert tokens.numpy().tolist() == [
        [[b"Zorb", b"dog"], [b"Quux", b"and"]],
        [[b"", b"the"], [b"", b"the"]],
        [[b"Quux", b"dog"], [b"", b""]],
    ]
    assert copied.shape == token_ids.shape


@settings(deadline=None, max_examples=50)
@given(rows)
def test_equals_a_loop_in_python(rows):
    extended = source_ids(tf.ragged.constant(rows, tf.string, ragged_rank=1), COPY_VOCABULARY)[1].numpy()
    for row, source in enumerate(rows):
        for position, word in enumerate(source):
            expected = COPY_VOCABULARY.encode([word])[0] if word in COPY_VOCABULARY else 7 + source.index(word)
            assert extended[row, position] == expected


def test_what_can_be_written_is_resolved_to_what_was_there():
    source = tokenize(["Zorb's dog and the Quux."])
    ids = dict(zip(source.to_list()[0], source_ids(source, COPY_VOCABULARY)[1].numpy()[0].tolist(), strict=True))
    written = [ids[token] for token in tokenize(["the Quux and Zorb's dog."]).to_list()[0]]
    tokens, copied = resolve(tf.constant([written]), source, COPY_VOCABULARY)
    assert detokenize(tokens).numpy().tolist() == [b"the Quux and Zorb's dog."]
    assert copied.numpy().tolist() == [[False, True, False, True, True, False, True]]


def test_many_unknown_words_do_not_collide():
    tokens = tf.reshape(tf.strings.as_string(tf.range(60_000)), [20, 3_000])
    extended = source_ids(tokens, COPY_VOCABULARY)[1].numpy()
    np.testing.assert_array_equal(extended, np.tile(np.arange(3_000) + 7, [20, 1]))
    same = source_ids(tf.fill([3, 50], "Zorb"), COPY_VOCABULARY)[1].numpy()
    assert (same == 7).all()


@pytest.mark.slow
def test_a_saved_model_needs_core_ops_only(tmp_path):
    module = tf.Module()
    module.table = COPY_VOCABULARY.table

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(texts):
        tokens = tokenize(texts)
        return detokenize(resolve(source_ids(tokens, COPY_VOCABULARY)[1], tokens, COPY_VOCABULARY)[0])

    module.serve = serve
    tf.saved_model.save(module, tmp_path / "model", signatures=serve)
    texts = ["Zorb's (dog) 中文!", ""]
    (outputs,) = call_in_fresh_process(tmp_path / "model", [("serving_default", {"texts": texts})], tmp_path)
    assert outputs["output_0"].tolist() == [text.encode() for text in texts]


# The corpus

DOCUMENTS = ["The cat of London sat. Sat the cat?", "A cat saw the NASA, and the cat sat."]
SUMMARIES = ["Cat Sat", "NASA Cat"]


def make_corpus(documents=DOCUMENTS, summaries=SUMMARIES):
    return TextCorpus(tokens_of(documents, text.tokenize), tokens_of(summaries, text.tokenize))


def test_texts_can_be_read_off_the_table():
    corpus = make_corpus()
    tokens = [corpus.words[code] for code in corpus.documents[1]]
    assert tokens == [token.decode() for token in text.tokenize(DOCUMENTS[1:]).to_list()[0]]
    assert len(corpus.documents) == len(corpus.summaries) == 2
    assert corpus.summaries.lengths.tolist() == [2, 2]


def test_words_that_differ_in_capitals_have_one_form():
    corpus = make_corpus()
    codes = [corpus.words.index(word) for word in ("the", "The")]
    assert len({corpus.form_of[code] for code in codes}) == 1


def test_the_vocabulary_has_the_usual_spelling_of_the_most_frequent_words():
    vocabulary = make_corpus().make_vocabulary(FIRST_CLASS + len(UNKNOWN_CLASSES) + 5)
    words = vocabulary.tokens[FIRST_CLASS + len(UNKNOWN_CLASSES) :]
    assert words == ("cat", "sat", "the", "NASA", "￭.")


def test_rare_words_can_be_left_out():
    vocabulary = make_corpus().make_vocabulary(1000, min_count=3)
    assert set(vocabulary.tokens[FIRST_CLASS + len(UNKNOWN_CLASSES) :]) == {"cat", "the", "sat"}


def test_a_spelling_of_headlines_counts_only_where_documents_have_none():
    corpus = make_corpus(["a cat", "a dog"], ["Big Cat", "Big Big CAT"])
    assert {"cat", "Big"} <= set(corpus.make_vocabulary(1000).tokens)


def test_encoders_read_unknown_words_by_their_kind():
    corpus = make_corpus(["Zork zorked 42", "zork"], ["a", "b"])
    vocabulary = to_model_forms(corpus.make_vocabulary(FIRST_CLASS + len(UNKNOWN_CLASSES) + 1))  # zork alone
    ids = dict(zip(corpus.words, corpus.encoder_ids(vocabulary).tolist(), strict=True))
    classes = list(UNKNOWN_CLASSES)
    assert ids["Zork"] == ids["zork"] == len(vocabulary) - 1
    assert ids["zorked"] == FIRST_CLASS + classes.index("<-ed>")
    assert ids["42"] == FIRST_CLASS + classes.index("<number>")
    assert ids["a"] == UNKNOWN
    assert (corpus.word_ids(vocabulary) == UNKNOWN).sum() == 4


def test_classes_can_go_by_the_form():
    corpus = TextCorpus([[b"Zork"]], [[b"x"]], model_form=tf.strings.lower)
    vocabulary = to_model_forms(corpus.make_vocabulary(FIRST_CLASS + len(UNKNOWN_CLASSES)))
    assert corpus.encoder_ids(vocabulary, by_form=True)[0] == UNKNOWN
    assert corpus.encoder_ids(vocabulary)[0] == FIRST_CLASS + list(UNKNOWN_CLASSES).index("<Title>")


def test_empty_texts_have_no_tokens():
    corpus = make_corpus(["", "a"], ["b", ""])
    assert corpus.documents[0].tolist() == []
    assert corpus.documents.lengths.tolist() == [0, 1]
    assert np.issubdtype(corpus.documents.codes.dtype, np.int32)
