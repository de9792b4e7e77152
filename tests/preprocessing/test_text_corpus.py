import numpy as np
import tensorflow as tf

from attention_apps.preprocessing import text
from attention_apps.preprocessing.text_corpus import TextCorpus, tokens_of
from attention_apps.preprocessing.vocabulary import UNKNOWN
from attention_apps.preprocessing.word_forms import FIRST_CLASS, UNKNOWN_CLASSES, to_model_forms

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
