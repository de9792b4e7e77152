import itertools

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.models.ctc import ctc_greedy_search, ctc_losses, frames_needed

S, V = 5, 6  # letters 3 to 5


def random_logits(batch, seed=0):
    return np.random.default_rng(seed).normal(0, 1.5, (batch, S, V)).astype("float32")


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def collapse(path):
    return tuple(token for token, _ in itertools.groupby(path) if token)


def loss_by_enumeration(logits, text):
    log_probs, frames = log_softmax(logits.astype("float64")), range(len(logits))
    paths = (path for path in itertools.product(range(V), repeat=len(logits)) if collapse(path) == text)
    return -np.log(sum(np.exp(sum(log_probs[t, path[t]] for t in frames)) for path in paths))


def test_losses_equal_the_sum_over_all_paths():
    logits, lengths = random_logits(4), [5, 4, 5, 3]
    texts = [(3, 4, 4), (5, 3), (), (4,)]
    tokens = np.zeros((4, 6), "int32")
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text) + 2] = (1, *text, 2)
    mask = np.arange(S) < np.array(lengths)[:, None]
    noise = np.where(mask[..., None], logits, 100 * random_logits(4, seed=1))  # what padding holds means nothing
    losses, fits = ctc_losses(noise, mask, tokens)
    expected = [loss_by_enumeration(logits[i, : lengths[i]], texts[i]) for i in range(4)]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert fits.numpy().all()
    without_ends = np.where(tokens > 2, tokens, 0)[:, 1:]
    np.testing.assert_allclose(ctc_losses(noise, mask, without_ends)[0], expected, rtol=1e-5)


def test_a_text_that_cannot_fit_is_skipped_and_told():
    tokens = np.array([[1, 3, 3, 3, 2, 0], [1, 3, 3, 2, 0, 0], [1, 4, 5, 3, 4, 2], [1, 2, 0, 0, 0, 0]])
    mask = np.arange(S) < np.array([4, 3, 3, 0])[:, None]
    np.testing.assert_array_equal(frames_needed(tokens), [5, 3, 4, 0])
    logits = tf.constant(random_logits(4))
    with tf.GradientTape() as tape:
        tape.watch(logits)
        losses, fits = ctc_losses(logits, mask, tokens)
    gradients = tape.gradient(losses, logits).numpy()
    np.testing.assert_array_equal(fits, [False, True, False, True])
    assert losses[1] > 0
    assert losses[0] == losses[2] == 0
    assert losses[3] == 0  # no frames and no letters
    assert np.isfinite(gradients).all()
    assert gradients[1, :3].any()
    assert not gradients[[0, 2, 3]].any()
    assert not gradients[1, 3:].any()


def test_gradients_are_those_of_finite_differences():
    logits, tokens, mask = random_logits(1), np.array([[1, 3, 4, 2]]), np.ones((1, S), bool)
    variable = tf.Variable(logits)
    with tf.GradientTape() as tape:
        loss = ctc_losses(variable, mask, tokens)[0]
    gradient = tape.gradient(loss, variable).numpy()
    for frame, token in ((0, 0), (2, 3), (4, 4), (1, 1)):
        step = np.zeros_like(logits)
        step[0, frame, token] = 1e-3
        change = loss_by_enumeration((logits + step)[0], (3, 4)) - loss_by_enumeration((logits - step)[0], (3, 4))
        assert gradient[0, frame, token] == pytest.approx(change / 2e-3, abs=1e-3)


def test_half_precision_logits_are_summed_in_float32():
    losses, _ = ctc_losses(tf.cast(random_logits(2), tf.float16), np.ones((2, S), bool), np.array([[3, 4], [5, 0]]))
    assert losses.dtype == tf.float32


def test_greedy_search_joins_repeats_and_leaves_out_blanks():
    paths = np.array([[3, 3, 0, 3, 5], [0, 4, 4, 5, 5], [0, 0, 0, 0, 0], [5, 4, 3, 4, 4]])
    mask = np.arange(S) < np.array([5, 3, 5, 2])[:, None]
    logits = np.eye(V, dtype="float32")[paths]
    expected = [[3, 3, 5, 0, 0], [4, 0, 0, 0, 0], [0] * 5, [5, 4, 0, 0, 0]]
    found = ctc_greedy_search(logits, mask)
    np.testing.assert_array_equal(found, expected)
    traced = tf.function(
        ctc_greedy_search, input_signature=[tf.TensorSpec((None, None, V)), tf.TensorSpec((None, None), bool)]
    )
    np.testing.assert_array_equal(traced(logits, mask), expected)
    assert traced(logits, mask).dtype == tf.int32


def test_one_trace_serves_every_size():
    signature = [
        tf.TensorSpec((None, None, V)),
        tf.TensorSpec((None, None), tf.bool),
        tf.TensorSpec((None, None), tf.int32),
    ]
    traced = tf.function(lambda *inputs: ctc_losses(*inputs)[0], input_signature=signature)
    for batch in (1, 3):
        tokens = np.tile(np.array([[1, 3, 4, 2]], "int32"), (batch, 1))
        mask = np.ones((batch, S), bool)
        np.testing.assert_allclose(
            traced(random_logits(batch), mask, tokens), ctc_losses(random_logits(batch), mask, tokens)[0], rtol=1e-6
        )
