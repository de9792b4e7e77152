from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.applications.parts import Codec, Examples, Parts, Source
from attention_apps.data import Row
from attention_apps.preprocessing.vocabulary import Vocabulary

ROWS = [Row({"text": text, "title": text[0]}, Path("data.csv"), line) for line, text in ((2, "abc"), (3, "xyz"))]


class Letters(Codec):
    outputs = join = None

    def texts(self, token_ids, source):
        return tf.strings.reduce_join(self.vocabulary.strings(token_ids), axis=2)


class Titles(Examples):
    columns = ("text", "title")
    data_check = metrics = batches = reading = __getitem__ = None


@pytest.fixture
def codec():
    return Letters(None, Vocabulary("abc"))


def test_a_codec_that_adds_nothing_changes_nothing(codec):
    source, options = {"x": tf.zeros(2)}, object()
    assert codec.prepare(source) is source
    assert codec.search_options(options) is options
    assert codec.scorers({}, options) == ()
    assert codec.files() == {}
    codec.take_files({"other.txt": "ignored"})
    assert codec.vocabulary == Vocabulary("abc")


@pytest.mark.parametrize(
    ("part", "methods"),
    [
        (Codec, {"texts", "outputs", "join"}),
        (Examples, {"data_check", "metrics", "batches", "__getitem__"}),
    ],
)
def test_what_every_task_must_write_says_so(part, methods):
    assert part.__abstractmethods__ == methods
    with pytest.raises(TypeError, match=f"abstract class {part.__name__}"):
        part(None, Vocabulary("a"))


def test_references_are_the_target_column_of_the_rows():
    examples = Titles(ROWS, config=None)
    assert len(examples) == 2
    assert examples.references == [["a"], ["x"]]


def test_the_vocabulary_has_the_frequent_tokens_and_the_others_are_unknown(codec):
    examples = Titles(ROWS, config=None)
    examples.words, examples.min_count = ["ab", "ax"], 2
    assert examples.make_vocabulary().words == ("a",)
    assert examples.unknown_rates(codec) == {"title": 0.25}


def test_sampled_tokens_of_any_length_become_texts(codec):
    examples = Titles(ROWS, config=None)
    examples.codec = codec
    encode = codec.vocabulary.encode
    assert examples.sampled_texts([encode("cab"), [], encode("b")], [0, 1, 1]) == ["cab", "", "b"]


def test_new_words_are_those_of_a_vocabulary_of_the_data():
    examples = Titles(ROWS, config=None)
    examples.make_vocabulary = lambda: Vocabulary(["x", "y"])
    assert list(examples.new_words(None)) == ["x", "y"]


def test_sources_that_hold_arrays_can_be_compared():
    one, other = (Source({"image": np.zeros(3)}) for _ in range(2))
    assert one == one
    assert one != other


def test_parts_need_neither_pretrained_weights_nor_a_further_loss():
    parts = Parts(reader=None, codec=Letters, model=None, examples=Titles)
    assert parts.load_pretrained(None) is None
    assert parts.extra_loss(None) is None


def test_by_default_an_export_clears_the_rows_that_are_not_ok():
    outputs = {"text": tf.constant([["a"], ["b"]]), "score": tf.constant([[1.0], [2.0]])}
    served = Letters(None, Vocabulary("a")).serve(outputs, {"status": tf.constant(["ok", "broken"])}, None)
    assert served["text"].numpy().tolist() == [[b"a"], [b""]]
    assert served["score"].numpy().tolist() == [[1.0], [float("-inf")]]
    assert served["status"].numpy().tolist() == [b"ok", b"broken"]
