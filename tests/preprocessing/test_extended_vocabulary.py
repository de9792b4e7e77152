import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_apps.preprocessing.extended_vocabulary import resolve, source_ids, target_ids
from attention_apps.preprocessing.text import detokenize, tokenize
from attention_apps.preprocessing.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["the", "dog", "and"])  # ids 4, 5, 6; copies from 7 on
SOURCE = tf.ragged.constant([["the", "Zorb", "and", "Quux", "Zorb"], [], ["Quux", "dog"]])

rows = st.lists(
    st.tuples(*[st.lists(st.sampled_from(["the", "dog", "Zorb", "Quux", "草", "zorb"]), max_size=6)] * 2),
    min_size=1,
    max_size=4,
)


def test_an_unknown_source_word_points_to_its_first_position():
    token_ids, extended_ids = source_ids(SOURCE, VOCABULARY)
    assert token_ids.numpy().tolist() == [[4, 3, 6, 3, 3], [0] * 5, [3, 5, 0, 0, 0]]
    assert extended_ids.numpy().tolist() == [[4, 8, 6, 10, 8], [0] * 5, [7, 5, 0, 0, 0]]
    assert token_ids.dtype == extended_ids.dtype == tf.int32


def test_an_unknown_target_word_points_into_the_source_if_it_is_there():
    target = tf.constant([["dog", "Quux", "Zorb"], ["Zorb", "the", ""], ["Zorb", "Quux", "Zorb"]])
    assert target_ids(target, SOURCE, VOCABULARY).numpy().tolist() == [[5, 10, 8], [3, 4, 0], [3, 7, 3]]


def test_resolving_spells_copies_as_the_source_does():
    token_ids = tf.constant([[1, 4, 8, 10, 2, 0], [5, 3, 2, 0, 0, 0], [7, 6, 7, 2, 0, 0]])
    tokens, copied = resolve(token_ids, SOURCE, VOCABULARY)
    assert tokens.numpy().tolist() == [
        [b"", b"the", b"Zorb", b"Quux", b"", b""],
        [b"dog", b"<unk>", b"", b"", b"", b""],
        [b"Quux", b"and", b"Quux", b"", b"", b""],
    ]
    assert copied.numpy().tolist() == (token_ids.numpy() >= 7).tolist()


def test_resolving_takes_beams_and_positions_beyond_the_source():
    token_ids = tf.constant([[[8, 5], [10, 6]], [[7, 4], [20, 4]], [[7, 8], [9, 30]]])
    tokens, copied = resolve(token_ids, SOURCE, VOCABULARY)
    assert tokens.numpy().tolist() == [
        [[b"Zorb", b"dog"], [b"Quux", b"and"]],
        [[b"", b"the"], [b"", b"the"]],
        [[b"Quux", b"dog"], [b"", b""]],
    ]
    assert copied.shape == token_ids.shape


@settings(deadline=None, max_examples=50)
@given(rows)
def test_equals_a_loop_in_python(rows):
    sources, targets = (tf.ragged.constant(list(part), tf.string, ragged_rank=1) for part in zip(*rows))
    extended, copies = source_ids(sources, VOCABULARY)[1].numpy(), target_ids(targets, sources, VOCABULARY).numpy()
    for row, (source, target) in enumerate(rows):
        for position, word in enumerate(source):
            expected = VOCABULARY.encode([word])[0] if word in VOCABULARY else 7 + source.index(word)
            assert extended[row, position] == expected
        for position, word in enumerate(target):
            copyable = word in source and word not in VOCABULARY
            assert copies[row, position] == (7 + source.index(word) if copyable else VOCABULARY.encode([word])[0])


def test_what_can_be_written_is_resolved_to_what_was_there():
    source = tokenize(["Zorb's dog and the Quux."])
    target = tokenize(["the Quux and Zorb's dog."])
    tokens, copied = resolve(target_ids(target, source, VOCABULARY), source, VOCABULARY)
    assert detokenize(tokens).numpy().tolist() == [b"the Quux and Zorb's dog."]
    assert copied.numpy().tolist() == [[False, True, False, True, True, False, True]]


def test_many_unknown_words_do_not_collide():
    tokens = tf.reshape(tf.strings.as_string(tf.range(60_000)), [20, 3_000])
    extended = source_ids(tokens, VOCABULARY)[1].numpy()
    np.testing.assert_array_equal(extended, np.tile(np.arange(3_000) + 7, [20, 1]))
    same = source_ids(tf.fill([3, 50], "Zorb"), VOCABULARY)[1].numpy()
    assert (same == 7).all()


@pytest.mark.slow
def test_a_saved_model_needs_core_ops_only(tmp_path):
    module = tf.Module()
    module.table = VOCABULARY.table

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(texts):
        tokens = tokenize(texts)
        return detokenize(resolve(source_ids(tokens, VOCABULARY)[1], tokens, VOCABULARY)[0])

    module.serve = serve
    tf.saved_model.save(module, tmp_path)
    program = (
        "import sys, tensorflow as tf\n"
        f"serve = tf.saved_model.load({str(tmp_path)!r}).serve\n"
        "assert serve(['Zorb\\'s (dog) 中文!', '']).numpy().tolist() == ['Zorb\\'s (dog) 中文!'.encode(), b'']\n"
        "assert not {'attention_apps', 'tensorflow_text'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
