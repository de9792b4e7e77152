import numpy as np
import tensorflow as tf

from attention_apps.applications.summary_examples import SummaryExamples
from attention_apps.models.tokens import END, START, UNKNOWN
from attention_apps.preprocessing import text
from attention_apps.preprocessing.extended_vocabulary import source_ids, target_ids
from attention_apps.preprocessing.text_corpus import TextCorpus, tokens_of
from attention_apps.preprocessing.word_forms import KIND_IDS, fold, fold_vocabulary

ROWS = [
    {"document": "Zork met zork and Quux in London.", "summary": "Quux Meets Zork, Bazz"},
    {"document": "the of in the of in the of in", "summary": "London in the of"},
    {"document": "London in the of", "summary": "The of"},
]


def make_examples(max_source_length=50):
    columns = ([row[name] for row in ROWS] for name in ("document", "summary"))
    corpus = TextCorpus(*(tokens_of(column, text.tokenize) for column in columns))
    vocabulary = fold_vocabulary(corpus.make_vocabulary(15))
    return SummaryExamples(ROWS, corpus, vocabulary, max_source_length), vocabulary


def test_ids_are_those_of_the_graph():
    examples, vocabulary = make_examples()
    for index, row in enumerate(ROWS):
        source = fold(text.tokenize([row["document"]]))
        ids, copied = source_ids(source, vocabulary)
        targets = target_ids(fold(text.tokenize([row["summary"]])), source, vocabulary)
        example = examples[index]
        known = ids[0].numpy() != UNKNOWN
        np.testing.assert_array_equal(example["source"]["token_ids"][known], ids[0].numpy()[known])
        assert set(example["source"]["token_ids"][~known]) <= {UNKNOWN, *KIND_IDS}
        np.testing.assert_array_equal(example["source"]["source_ids"], copied[0])
        assert example["tokens"].tolist() == [START, *targets[0].numpy().tolist(), END]


def test_a_word_that_differs_in_capitals_only_can_be_copied():
    examples, vocabulary = make_examples()
    tokens = examples[0]["tokens"]
    assert tokens[1] == len(vocabulary) + 4  # Quux
    assert tokens[3] == len(vocabulary)  # Zork, first at position 0
    assert tokens[5] == UNKNOWN  # Bazz


def test_only_the_beginning_of_a_long_document_is_read():
    examples, _ = make_examples(max_source_length=3)
    assert len(examples[0]["source"]["token_ids"]) == 3
    assert examples.source_tokens([0, 2]).numpy().tolist() == [[b"Zork", b"met", b"zork"], [b"London", b"in", b"the"]]


def test_examples_alike_in_both_lengths_have_the_same_number():
    examples, _ = make_examples()
    assert examples.lengths.shape == (3,)
    assert len(set(examples.lengths.tolist())) > 1


def test_references_and_names_are_those_of_the_rows():
    examples, _ = make_examples()
    assert len(examples) == 3
    assert examples.references(1) == ["London in the of"]
    assert examples.name(2) == "London in the of"
    assert examples.signature["tokens"] == tf.TensorSpec((None,), tf.int32)
