import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("the kernels are for TensorFlow", allow_module_level=True)

import tensorflow as tf

from attention_apps.layers import recurrent_kernels

T, B, U = 6, 3, 4
MASK = (np.arange(T)[:, None] < np.array([6, 3, 0]))[..., None]  # (T, B, 1)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def arrays(gates, *leading):
    rng = np.random.default_rng(0)
    shapes = [(T, *leading, B, gates * U), (*leading, U, gates * U), (*leading, B, U), (*leading, B, U)]
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


def plain_lstm(inputs, kernel, hidden, cell, mask):
    hiddens = []
    for x, real in zip(inputs, mask):
        i, f, c, o = np.split(x + hidden @ kernel, 4, axis=-1)
        new_cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(c)
        new_hidden = sigmoid(o) * np.tanh(new_cell)
        hidden, cell = np.where(real, new_hidden, hidden), np.where(real, new_cell, cell)
        hiddens.append(hidden)
    return np.stack(hiddens), hidden, cell


def plain_gru(inputs, kernel, bias, hidden, mask):
    hiddens = []
    for x, real in zip(inputs, mask):
        inner = hidden @ kernel + bias
        update, reset = np.split(sigmoid(x[..., : 2 * U] + inner[..., : 2 * U]), 2, axis=-1)
        candidate = np.tanh(x[..., 2 * U :] + reset * inner[..., 2 * U :])
        hidden = np.where(real, update * hidden + (1 - update) * candidate, hidden)
        hiddens.append(hidden)
    return np.stack(hiddens), hidden


@pytest.mark.parametrize("mask", [None, MASK], ids=["full", "padded"])
def test_lstm_is_its_definition(mask):
    inputs, kernel, hidden, cell = arrays(4)
    expected = plain_lstm(inputs, kernel, hidden, cell, np.ones_like(MASK) if mask is None else mask)
    found = recurrent_kernels.lstm(*map(tf.constant, (inputs, kernel, hidden, cell)), mask)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("mask", [None, MASK], ids=["full", "padded"])
def test_gru_is_its_definition(mask):
    inputs, kernel, hidden, _ = arrays(3)
    bias = np.linspace(-1, 1, 3 * U, dtype="float32")
    expected = plain_gru(inputs, kernel, bias, hidden, np.ones_like(MASK) if mask is None else mask)
    found = recurrent_kernels.gru(*map(tf.constant, (inputs, kernel, bias, hidden)), mask)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_two_directions_in_one_loop_equal_each_on_its_own():
    inputs, kernel, hidden, cell = arrays(4, 2)
    together = recurrent_kernels.lstm(*map(tf.constant, (inputs, kernel, hidden, cell)))[0]
    for direction in range(2):
        alone = recurrent_kernels.lstm(
            tf.constant(inputs[:, direction]), *(tf.constant(x[direction]) for x in (kernel, hidden, cell))
        )[0]
        np.testing.assert_allclose(together[:, direction], alone, atol=1e-6)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_gradients_are_the_slopes(name):
    gates = {"lstm": 4, "gru": 3}[name]
    inputs, kernel, hidden, cell = arrays(gates)
    bias = np.linspace(-1, 1, gates * U, dtype="float32")
    values = (inputs, kernel, hidden, cell) if name == "lstm" else (inputs, kernel, bias, hidden)
    values = [tf.constant(x) for x in values]
    direction = [tf.constant(np.random.default_rng(1).normal(size=x.shape), tf.float32) for x in values]

    def loss(*values):
        return tf.reduce_sum(tf.sin(getattr(recurrent_kernels, name)(*values, MASK)[0]))

    with tf.GradientTape() as tape:
        tape.watch(values)
        result = loss(*values)
    slope = sum(tf.reduce_sum(g * d) for g, d in zip(tape.gradient(result, values), direction))
    step = 1e-3
    high = loss(*(x + step * d for x, d in zip(values, direction)))
    low = loss(*(x - step * d for x, d in zip(values, direction)))
    np.testing.assert_allclose(slope, (high - low) / (2 * step), rtol=2e-2)
