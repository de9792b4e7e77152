"""Words and their times in the graph are those outside of it."""

import numpy as np
import tensorflow as tf

from attention_apps.applications.word_times import geometric_mean, letter_spans, words_with_times
from attention_apps.applications.word_times_graph import letter_spans_in_graph, mean_confidence, words_in_graph

find_words = tf.function(words_in_graph, autograph=False, reduce_retracing=True)
B, T = 50, 11


def make_batch(seed, frame_seconds):
    """Letters with spaces at any place, their positions rising, and sounds that begin and end at any frame."""
    random = np.random.default_rng(seed)
    seconds = random.uniform(0.1, 2.5, B)
    tokens = random.choice(["A", "b", "Ü", " "], (B, T), p=[0.3, 0.2, 0.1, 0.4])
    tokens[np.arange(T) >= random.integers(0, T + 1, B)[:, np.newaxis]] = ""
    ends = np.sort(random.integers(0, int(2.5 / frame_seconds) + 2, (B, 2 * T)), axis=1)
    spans = np.stack([ends[:, ::2], ends[:, 1::2] + 1], axis=2)
    spans = np.maximum.accumulate(spans, axis=1)
    counts = (seconds / 0.01).astype(np.int32)
    changes = random.random((B, counts.max() + 3)) < random.choice([0.03, 0.3], (B, 1))
    loud = np.cumsum(changes, axis=1) % 2 == 1
    return tokens, spans.astype(np.int32), random.random((B, T)).astype(np.float32), loud, counts, seconds


def test_words_have_the_same_times_and_confidences():
    total = 0
    for seed, frame_seconds in enumerate((0.04, 0.04, 0.05, 0.0333)):
        tokens, spans, confidences, loud, counts, seconds = make_batch(seed, frame_seconds)
        step = tf.constant(frame_seconds, tf.float64)
        outputs = find_words(tokens, spans, confidences, step, loud, counts, seconds)
        outputs = {name: array.numpy() for name, array in outputs.items()}
        for row in range(B):
            letters = [token for token in tokens[row] if token]
            number = len(letters)
            heard = loud[row, : counts[row]]
            expected = words_with_times(
                letters, spans[row, :number], confidences[row, :number], frame_seconds, heard, seconds[row]
            )
            found = [word.decode() for word in outputs["words"][row]]
            assert found == [word.word for word in expected] + [""] * (len(found) - len(expected))
            for name, values in (
                ("start", [word.start for word in expected]),
                ("end", [word.end for word in expected]),
                ("word_confidence", [word.confidence for word in expected]),
            ):
                np.testing.assert_allclose(outputs[name][row, : len(values)], values, atol=1.1e-3)  # one is rounded
                assert not outputs[name][row, len(values) :].any()
            total += len(expected)
    assert total > 300


def test_there_may_be_no_words_at_all():
    nothing = tf.zeros([2, 2, 2], tf.int32), tf.zeros([2, 2]), tf.constant(0.04, tf.float64), tf.zeros([2, 0], tf.bool)
    outputs = find_words(
        tf.constant([["", ""], [" ", ""]]), *nothing, tf.zeros([2], tf.int32), tf.zeros([2], tf.float64)
    )
    assert {tuple(array.shape) for array in outputs.values()} == {(2, 0)}


def test_where_ctc_finds_no_way_letters_are_where_attention_looked_most():
    random = np.random.default_rng(0)
    attention = random.random((2, 5, 7)).astype(np.float32)
    alignment = random.integers(0, 7, (2, 5, 2)).astype(np.int32)
    spans = letter_spans_in_graph(alignment, np.array([True, False]), attention).numpy()
    np.testing.assert_array_equal(spans[0], alignment[0])
    np.testing.assert_array_equal(spans[1], letter_spans(None, attention[1]))


def test_the_confidence_of_a_text_is_the_geometric_mean():
    confidences = np.float32([[0.5, 0.25, 0.9], [0.7, 0, 0], [0.3, 0.3, 0.3]])
    counts = (2, 3, 0)
    means = mean_confidence(confidences, np.arange(3) < np.array(counts)[:, np.newaxis])
    expected = [geometric_mean(row[:count]) for row, count in zip(confidences, counts, strict=True)]
    np.testing.assert_allclose(means, expected, rtol=1e-5)
