from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.applications import TranslatorConfig
from attention_apps.applications.translation.codec import TranslationCodec
from attention_apps.applications.translation.examples import TranslationExamples
from attention_apps.applications.translation.reader import TranslationReader
from attention_apps.constants import END, START
from attention_apps.data import Row
from attention_apps.training import TrainingConfig, read_config
from tests.applications.translators import CONFIGS, make_pairs

ROWS = [*make_pairs(30), ("The Zörk costs £3,000.", "Der Zörk kostet £3,000."), ("two words", "zwei Wörter")]


def make_examples(overrides=()):
    config = read_config(TranslatorConfig, CONFIGS["transformer"], overrides)
    rows = [
        Row({"source": source, "target": target}, Path("data.tsv"), number)
        for number, (source, target) in enumerate(ROWS, 1)
    ]
    examples = TranslationExamples(rows, config)
    codec = TranslationCodec(config, examples.make_vocabulary())
    examples.bind(codec, None, Path("cache"), training=True, quiet=True)
    return examples


@pytest.fixture(scope="module")
def examples():
    return make_examples()


def text_of(examples, ids):
    return examples.codec.texts(tf.constant([[ids]]), {}).numpy()[0, 0].decode()


def test_both_texts_can_be_spelled_with_one_vocabulary(examples):
    for index in (0, -2, -1):
        index %= len(ROWS)
        example = examples[index]
        assert text_of(examples, example["source"]["token_ids"].tolist()) == ROWS[index][0]
        first, *target, last = example["tokens"].tolist()
        assert (first, last) == (START, END)
        assert text_of(examples, target) == ROWS[index][1]


def test_the_encoder_reads_what_the_pipeline_prepares(examples):
    reading = examples.reading(30, TranslationReader(examples.config), examples.config.output)
    (source,) = reading.sources
    prepared = examples.codec.prepare({"tokens": tf.constant([source.tensors["tokens"].tolist()])})
    np.testing.assert_array_equal(prepared["token_ids"][0], examples[30]["source"]["token_ids"])
    assert reading.item == ROWS[30][0]


def test_batches_have_all_examples_and_no_more_pieces_than_they_may(examples):
    config = TrainingConfig(batch_size=100, max_batch_length=90)
    batches = list(examples.batches(config).batches(0))
    assert sum(len(batch["tokens"]) for batch in batches) == len(examples) == len(ROWS)
    assert len(batches) > 3
    for batch in batches:
        longest = max(batch["tokens"].shape[1] - 1, batch["source"]["token_ids"].shape[1])
        assert len(batch["tokens"]) == 1 or longest * len(batch["tokens"]) <= 90


def test_a_decoder_that_copies_is_trained_with_what_it_can_copy():
    example = make_examples(["decoder.copying=true"])[0]
    np.testing.assert_array_equal(example["source"]["source_ids"], example["source"]["token_ids"])


def test_with_dropout_the_same_text_is_cut_in_many_ways():
    examples = make_examples(["piece_dropout=0.5"])
    seen = set()
    for epoch in range(4):
        for batch in examples.batches(TrainingConfig(batch_size=8)).batches(epoch):
            for ids in batch["tokens"].numpy():
                _, *target = [token for token in ids.tolist() if token]
                if text_of(examples, target[:-1]) == ROWS[0][1]:
                    seen.add(tuple(target))
    assert len(seen) > 1


def test_without_training_there_is_no_dropout():
    examples = make_examples(["piece_dropout=0.5"])
    whole = examples[0]["tokens"]
    examples.bind(examples.codec, None, Path("cache"), training=False, quiet=True)
    assert len(examples[0]["tokens"]) < len(whole)
    np.testing.assert_array_equal(examples[0]["tokens"], make_examples()[0]["tokens"])


def test_fine_tuning_adds_no_pieces(examples):
    assert examples.has_fixed_vocabulary


def test_sampled_pieces_become_texts(examples):
    *target, _ = examples[0]["tokens"].tolist()
    assert examples.sampled_texts([target, [END]], [0, 1]) == [ROWS[0][1], ""]


def test_the_metrics_are_bleu_and_chrf():
    scores = TranslationExamples.metrics(["a b c d e"], [["a b c d e"]], ["x"])
    assert {name: round(result.score) for name, result in scores.items()} == {"sacre_bleu": 100, "chrf": 100}


def test_long_rows_are_left_out(tmp_path):
    config = read_config(TranslatorConfig, CONFIGS["transformer"])
    check = TranslationExamples.data_check(config, None)
    row = Row({"source": "a", "target": "ü" * 40}, Path("data.tsv"), 1)
    assert check.reject(row, 1) == "`target` has 80 bytes, more than 64, the `max_sentence_length`"
    assert check.reject(Row({"source": "a", "target": "b"}, Path("data.tsv"), 2), 1) is None
