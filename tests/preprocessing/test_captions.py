import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_apps.metrics import caption_words
from attention_apps.preprocessing.captions import detokenize, tokenize


def words_of(caption):
    return [word.decode() for word in tokenize([caption]).to_list()[0]]


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("A dog, running on the GRASS .", "a dog running on the grass"),
        ("A man's T-shirt (red) doesn't fit!", "a man 's t-shirt red does n't fit"),
        ("A dog 's toy is n't here", "a dog 's toy is n't here"),
        ("'one' 'two' - three--four -five- \"six\"", "one two three four five six"),
        ("It\u2019s 5 o'clock; they're off & away", "it 's 5 o'clock they 're off away"),
        ("ÉCOLE Ångström 草 🙂", "école ångström 草"),
        ("", ""),
        ("...", ""),
        ("' - '", ""),
        ("\x00a\n\tb\u3000c", "a b c"),
    ],
)
def test_words(caption, words):
    assert words_of(caption) == words.split()


def test_contractions_are_joined_again():
    tokens = [["a", "man", "'s", "hat", "does", "n't", "fit"], ["they", "'re", "", ""], [], ["'s"]]
    expected = [b"a man's hat doesn't fit", b"they're", b"", b"'s"]
    assert detokenize(tokens).numpy().tolist() == expected
    assert detokenize(tf.ragged.constant(tokens, tf.string).to_tensor("")).numpy().tolist() == expected


caption_parts = ["A", "man", "dog 's", "dog's", "t-shirt", "Is n't", "isn't", "they're", "o'clock", ",", ".", '"', "3"]
plain_captions = st.lists(st.sampled_from(caption_parts), max_size=8).map(" ".join)


@settings(deadline=None, max_examples=50)
@given(plain_captions)
def test_words_are_those_that_the_metrics_count(caption):
    assert words_of(caption) == caption_words(caption)


@settings(deadline=None, max_examples=50)
@given(plain_captions)
def test_a_caption_keeps_its_words_when_it_is_joined(caption):
    words = tokenize([caption])
    assert tokenize(detokenize(words)).to_list() == words.to_list()


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=20))
def test_any_text_gives_words_without_spaces(text):
    assert all(word and " " not in word for word in words_of(text))


def test_a_graph_gives_what_eager_calls_give():
    captions = ["A man's dog.", ""]
    graph = tf.function(lambda texts: tokenize(texts), input_signature=[tf.TensorSpec([None], tf.string)])
    assert graph(tf.constant(captions)).to_list() == tokenize(captions).to_list()
