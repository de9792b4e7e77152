from collections import Counter

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_apps.preprocessing import vocabulary as module
from attention_apps.preprocessing.vocabulary import END, PADDING, START, UNKNOWN, Vocabulary

words = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=8)
word_lists = st.lists(words.filter(lambda word: word not in module.SPECIAL_TOKENS), unique=True, max_size=20)


def test_special_tokens_come_first():
    vocabulary = Vocabulary(["dog", "cat"])
    assert vocabulary.tokens == ("<pad>", "<start>", "<end>", "<unk>", "dog", "cat")
    assert (PADDING, START, END, UNKNOWN) == (0, 1, 2, 3)
    assert len(vocabulary) == 6
    assert "cat" in vocabulary
    assert "cow" not in vocabulary
    assert repr(vocabulary) == "<Vocabulary of 6 tokens>"


def test_build_orders_by_count_then_by_word():
    texts = [["b", "a", "c"], ["c", "a", "b"], ["c", "<unk>", "d"]]
    assert Vocabulary.build(texts).tokens[4:] == ("c", "a", "b", "d")
    assert Vocabulary.build(texts[::-1]) == Vocabulary.build(texts)
    assert Vocabulary.build(Counter({"x": 1, "y": 5})).tokens[4:] == ("y", "x")


def test_build_keeps_the_most_frequent():
    texts = [["c", "c", "c", "a", "a", "b"]]
    assert Vocabulary.build(texts, min_count=2).tokens[4:] == ("c", "a")
    assert Vocabulary.build(texts, max_size=5).tokens[4:] == ("c",)
    assert len(Vocabulary.build(texts, max_size=4)) == 4
    with pytest.raises(ValueError, match=r"`max_size` must be at least 4. Received: max_size=3"):
        Vocabulary.build(texts, max_size=3)
    with pytest.raises(ValueError, match=r"`min_count` must be at least 1. Received: min_count=0"):
        Vocabulary.build(texts, min_count=0)


def test_encode_and_decode():
    vocabulary = Vocabulary(["dog", "cat"])
    assert vocabulary.encode(["cat", "cow", "dog", "<end>"]) == [5, 3, 4, 2]
    assert vocabulary.decode([1, 5, 3, 4, 2, 0]) == ["cat", "<unk>", "dog"]
    for bad in (-1, 6):
        with pytest.raises(ValueError, match=f"`token_ids` must be from 0 to 5. Received: {bad}"):
            vocabulary.decode([4, bad])


def test_growing_keeps_the_old_ids():
    old = Vocabulary(["dog", "cat"])
    grown = old.grow(["cow", "dog", "ant", "cow"])
    assert grown.tokens == (*old.tokens, "cow", "ant")
    assert len(old) == 6


@settings(deadline=None, max_examples=50)
@given(words=word_lists)
def test_saved_and_loaded_is_the_same(tmp_path_factory, words):
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.txt"
    vocabulary = Vocabulary(words)
    vocabulary.save(path)
    loaded = Vocabulary.load(path)
    assert loaded == vocabulary
    assert hash(loaded) == hash(vocabulary)
    assert path.read_bytes().decode("utf-8") == "".join(f"{token}\n" for token in vocabulary.tokens)


def test_the_order_of_the_words_matters():
    assert Vocabulary(["a", "b"]) != Vocabulary(["b", "a"])


def test_the_last_line_break_may_be_missing_and_a_space_is_a_token(tmp_path):
    path = tmp_path / "letters.txt"
    path.write_text("<pad>\n<start>\n<end>\n<unk>\n \na", encoding="utf-8", newline="\n")
    assert Vocabulary.load(path).tokens[4:] == (" ", "a")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"dog\ncat\n", "is not a vocabulary: its first lines must be <pad>, <start>, <end>, <unk>"),
        (b"", "is not a vocabulary"),
        (b"<pad>\n<start>\n<end>\n<unk>\ndog\ncat\ndog\n", "Token 7 of the vocabulary is a duplicate"),
        (b"<pad>\n<start>\n<end>\n<unk>\ndog\n\ncat\n", "Token 6 of the vocabulary must not be empty"),
        (b"<pad>\n<start>\n<end>\n<unk>\na\x00b\n", "Token 5 .* must not contain control characters"),
        (b"<pad>\n<start>\n<end>\n<unk>\ndog\r\n", "Token 5 .* must not contain control characters"),
        (b"<pad>\n<start>\n<end>\n<unk>\n\xff\n", "is not UTF-8 text"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path, content, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        Vocabulary.load(path)
    assert str(path) in str(error.value)


def test_a_file_beyond_the_limits_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "large.txt"
    Vocabulary(["a", "b", "c"]).save(path)
    monkeypatch.setattr(module, "_MAX_ENTRIES", 6)
    with pytest.raises(ValueError, match=r"holds at most 6 tokens. Received: 3 words"):
        Vocabulary.load(path)
    monkeypatch.setattr(module, "_MAX_BYTES", 10)
    with pytest.raises(ValueError, match="too large for a vocabulary: 32 bytes, limit 10"):
        Vocabulary.load(path)


@pytest.mark.parametrize("word", ["", "a\nb", "\u2028", "a\x7f", None, "<pad>"])
def test_bad_words_are_refused(word):
    with pytest.raises(ValueError, match="Token 6 of the vocabulary"):
        Vocabulary(["dog", word])


def test_lookup_equals_encode_in_a_graph():
    vocabulary = Vocabulary(["dog", "Käse", "草"])

    @tf.function
    def lookup(tokens):
        return vocabulary.lookup(tokens)

    tokens = [["dog", "cow", "草"], ["Käse", "", "<end>"]]
    assert lookup(tf.constant(tokens)).numpy().tolist() == [[4, 3, 6], [5, 0, 2]]
    assert vocabulary.lookup(tf.ragged.constant([["dog"], []])).to_list() == [[4], []]
    assert lookup(tf.constant(tokens)).dtype == tf.int32


def test_lookup_works_in_a_data_set_and_a_saved_model(tmp_path):
    vocabulary = Vocabulary(["dog"])
    data = tf.data.Dataset.from_tensor_slices(["dog", "cow"]).map(vocabulary.lookup)
    assert list(data.as_numpy_iterator()) == [4, 3]

    module = tf.Module()
    module.table = vocabulary.table
    module.lookup = tf.function(vocabulary.lookup, input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, tmp_path)
    assert tf.saved_model.load(tmp_path).lookup(["cow", "dog"]).numpy().tolist() == [3, 4]


def test_a_very_long_word_is_refused_in_a_short_message():
    with pytest.raises(ValueError, match="must have at most 1,000 characters") as error:
        Vocabulary(["a" * 10_000_000])
    assert len(str(error.value)) < 300
