import pytest
import tensorflow as tf
from keras import ops

from attention_apps.applications.summarization.word_limit import word_limit
from attention_apps.decoding import DecodingOptions, beam_search
from attention_apps.preprocessing.text import detokenize
from attention_apps.preprocessing.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["dog", "￭.", "￭-￭", "'￭", "cat"])
SIZE = len(VOCABULARY)


def write(preferences, min_words=0, max_words=None):
    """What greedy search writes that likes tokens in the order given, and never one it wrote before."""
    order = {token: rank for rank, token in enumerate([*preferences, "<end>"])}
    logits = [-5.0 * order.get(token, 20) for token in VOCABULARY.tokens] + [-300.0, -300.0]

    def step(token, state):
        written = ops.one_hot(token, SIZE + 2) + state["written"]
        return tf.constant([logits]) - 200.0 * written, {"written": written}

    scorer = word_limit(VOCABULARY, tf.constant([[4, SIZE + 1]]), min_words, max_words)
    options = DecodingOptions(beam_size=1, max_length=8, banned_tokens=(0, 1, 3))
    result = beam_search(step, {"written": tf.zeros((1, SIZE + 2))}, options, scorers=[scorer])
    ids = [index for index in result.token_ids.numpy()[0, 0].tolist() if 3 < index < SIZE]
    return detokenize([[VOCABULARY.tokens[index] for index in ids]]).numpy()[0].decode()


def test_without_bounds_nothing_changes():
    assert write(["dog", "￭-￭", "cat", "￭."]) == "dog-cat."


@pytest.mark.parametrize(
    ("preferences", "most", "expected"),
    [
        (["dog", "cat", "￭."], 1, "dog."),
        (["dog", "￭-￭", "cat", "￭."], 1, "dog-cat."),
        (["'￭", "dog", "cat", "￭."], 1, "'dog."),
        (["dog", "cat", "￭."], 2, "dog cat."),
    ],
)
def test_no_word_begins_beyond_the_most(preferences, most, expected):
    text = write(preferences, max_words=most)
    assert text == expected
    assert len(text.split()) <= most


def test_the_end_waits_for_the_fewest_words():
    assert write(["<end>"]) == ""
    assert len(write([], min_words=2).split()) >= 2
