from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.applications.compression.codec import TagCodec
from attention_apps.applications.compression.config import CompressorConfig
from attention_apps.applications.compression.examples import CompressionExamples
from attention_apps.applications.compression.reader import SentenceReader
from attention_apps.constants import END, START
from attention_apps.data import Row
from attention_apps.models.copying import DELETE, KEEP

CONFIG = CompressorConfig(vocabulary_size=100)


def row(**values):
    return Row(values, Path("data.jsonl"), 1)


KEPT = row(document="a big dog 's tail .", summary="a dog .", keep="101001")
TYPED = row(document="The big Dog's tail, it seems, wags.", summary="the dog's tail wags.")


def make_examples(*rows):
    examples = CompressionExamples(rows, CONFIG)
    codec = TagCodec(CONFIG, examples.make_vocabulary())
    examples.bind(codec, None, Path("cache"), training=True, quiet=True)
    return examples


def tokens_of(examples, index):
    (source,) = examples.reading(index, SentenceReader(CONFIG), CONFIG.output).sources
    return [token.decode() for token in source.tensors["tokens"]]


def test_a_tag_for_each_word_between_spaces():
    example = make_examples(KEPT)[0]
    assert example["tokens"].tolist() == [START, KEEP, DELETE, KEEP, DELETE, DELETE, KEEP, END]
    assert example["source"]["token_ids"].shape == (6,)


def test_without_keep_the_words_of_the_summary_are_looked_for():
    examples = make_examples(TYPED, KEPT)
    tags = examples[0]["tokens"][1:-1]
    kept = [word for word, tag in zip(tokens_of(examples, 0), tags, strict=True) if tag == KEEP]
    assert kept == ["The", "Dog", "￭'s", "tail", "wags", "￭."]


def test_the_encoder_reads_what_the_pipeline_prepares():
    examples = make_examples(TYPED, KEPT)
    for index in range(2):
        prepared = examples.codec.prepare({"tokens": tf.constant([tokens_of(examples, index)])})
        np.testing.assert_array_equal(prepared["token_ids"][0], examples[index]["source"]["token_ids"])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(document="a b", summary="a", keep="1"), "`keep` must be a text of 2 times 0 or 1"),
        (row(document="a b", summary="a", keep="12"), "`keep` must be a text of 2 times 0 or 1"),
        (row(document="a b", summary="a", keep=[1, 0]), "`keep` must be a text of 2 times 0 or 1"),
        (row(document="One two.", summary="two one"), "`summary` must be `document` with some of its words left out"),
    ],
)
def test_rows_without_an_alignment_are_rejected(bad, message):
    assert message in CompressionExamples.data_check(CONFIG, None).reject(bad, None)


@pytest.mark.parametrize("good", [KEPT, TYPED])
def test_good_rows_have_no_problem(good):
    assert CompressionExamples.data_check(CONFIG, None).reject(good, None) is None


def test_references_and_sources_are_those_of_the_rows():
    examples = make_examples(KEPT, TYPED)
    assert examples.references[0] == ["a dog ."]
    assert examples.reading(0, SentenceReader(CONFIG), CONFIG.output).item == KEPT["document"]
    assert len(examples) == 2


def test_sampled_tags_become_texts():
    examples = make_examples(KEPT, TYPED)
    tags = [[KEEP, DELETE, KEEP, END], [DELETE] * 6 + [KEEP] * 2 + [END]]
    assert examples.sampled_texts(tags, [0, 1]) == ["a dog", "It seems"]


def test_the_metrics_compare_words_and_lengths():
    scores = CompressionExamples.metrics(["a b"], [["a b c"]], ["a b c d"])
    assert scores["token_f1"].score == pytest.approx(0.8)
    assert scores["compression_rate"].score == pytest.approx(len("a b") / len("a b c d"), abs=0.1)
    assert scores["reference_rate"].score > scores["compression_rate"].score
