from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.applications.summarization.codec import SummaryCodec
from attention_apps.applications.summarization.config import SummarizerConfig
from attention_apps.applications.summarization.examples import SummaryExamples
from attention_apps.applications.summarization.reader import TextReader
from attention_apps.constants import END, START, UNKNOWN
from attention_apps.data import Row
from attention_apps.preprocessing import text
from attention_apps.preprocessing.word_forms import UNKNOWN_CLASS_IDS, lowercase, source_ids
from attention_apps.training import TrainingConfig

ROWS = [
    {"document": "Zork met zork and Quux in London.", "summary": "Quux Meets Zork, Bazz"},
    {"document": "the of in the of in the of in", "summary": "London in the of"},
    {"document": "London in the of", "summary": "The of"},
]


def make_examples(size=15, **settings):
    """Examples and their vocabulary, by default of the words the, of, in and London."""
    config = SummarizerConfig(vocabulary_size=100, **settings)
    rows = [Row(row, Path("data.jsonl"), number) for number, row in enumerate(ROWS, 1)]
    examples = SummaryExamples(rows, config)
    codec = SummaryCodec(config, examples.corpus.make_vocabulary(size))
    examples.bind(codec, None, Path("cache"), training=True, quiet=True)
    return examples, codec.model_vocabulary


def reading_of(examples, index):
    return examples.reading(index, TextReader(examples.config), examples.config.output)


def test_ids_are_those_of_the_graph():
    examples, vocabulary = make_examples()
    for index, row in enumerate(ROWS):
        source = lowercase(text.tokenize([row["document"]]))
        ids, copied = source_ids(source, vocabulary)
        id_of = dict(zip(source.to_list()[0], copied.numpy()[0].tolist(), strict=True))
        summary = lowercase(text.tokenize([row["summary"]])).to_list()[0]
        targets = [id_of.get(token, vocabulary.encode([token.decode()])[0]) for token in summary]
        example = examples[index]
        known = ids[0].numpy() != UNKNOWN
        np.testing.assert_array_equal(example["source"]["token_ids"][known], ids[0].numpy()[known])
        assert set(example["source"]["token_ids"][~known]) <= {UNKNOWN, *UNKNOWN_CLASS_IDS}
        np.testing.assert_array_equal(example["source"]["source_ids"], copied[0])
        assert example["tokens"].tolist() == [START, *targets, END]


def test_the_encoder_reads_what_the_pipeline_prepares():
    examples, _ = make_examples()
    (source,) = reading_of(examples, 0).sources
    prepared = examples.codec.prepare({"tokens": tf.constant([source.tensors["tokens"].tolist()])})
    for name, ids in examples[0]["source"].items():
        np.testing.assert_array_equal(prepared[name][0], ids)


def test_a_word_that_differs_in_capitals_only_can_be_copied():
    examples, vocabulary = make_examples()
    tokens = examples[0]["tokens"]
    assert tokens[1] == len(vocabulary) + 4  # Quux
    assert tokens[3] == len(vocabulary)  # Zork, first at position 0
    assert tokens[5] == UNKNOWN  # Bazz


def test_only_the_beginning_of_a_long_document_is_read():
    examples, _ = make_examples(max_source_length=8)
    assert len(examples[1]["source"]["token_ids"]) == 8
    reading = reading_of(examples, 1)
    (source,) = reading.sources
    assert source.tensors["tokens"].tolist() == [b"the", b"of", b"in", b"the", b"of", b"in", b"the", b"of"]
    assert (source.place, reading.item) == ((0, 8), ROWS[1]["document"])


def test_examples_alike_in_both_lengths_share_a_class():
    examples, _ = make_examples()
    lengths = examples.batches(TrainingConfig(batch_size=2)).lengths
    assert lengths.shape == (3,)
    assert len(set(lengths.tolist())) > 1


def test_batches_have_all_examples():
    examples, _ = make_examples()
    batches = list(examples.batches(TrainingConfig(batch_size=2, short_first_epochs=0)).batches(0))
    assert sum(len(batch["tokens"]) for batch in batches) == len(examples) == 3
    assert all(batch["source"]["token_ids"].shape == batch["source"]["source_ids"].shape for batch in batches)


def test_references_are_those_of_the_rows():
    examples, _ = make_examples()
    assert examples.references[1] == ["London in the of"]


def test_sampled_tokens_become_texts_with_copied_words():
    examples, vocabulary = make_examples()
    copied = len(vocabulary) + 4  # Quux in the first document
    known = vocabulary.encode(["in", "the"])
    assert examples.sampled_texts([[copied, *known], [*known, END]], [0, 1]) == ["Quux in the", "In the"]


def test_new_words_are_those_that_occur_often_enough():
    examples, _ = make_examples(min_new_count=2)
    assert {word.lower() for word in examples.new_words(examples.codec)} == {"zork", "quux"}
    larger, _ = make_examples(size=100, min_new_count=2)
    assert list(larger.new_words(larger.codec)) == []


def test_unknown_rates_are_per_column():
    examples, _ = make_examples()
    rates = examples.unknown_rates(examples.codec)
    assert rates["document"] == pytest.approx(6 / 21)
    assert rates["summary"] > rates["document"]


def test_the_metrics_are_rouge():
    scores = SummaryExamples.metrics(["a b c"], [["a b c"]], ["a b c d"])
    assert {name: result.score for name, result in scores.items()} == {"rouge_1": 1, "rouge_2": 1, "rouge_l": 1}
