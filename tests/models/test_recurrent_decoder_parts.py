import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.models.recurrent_decoder_parts import DecoderCell, Readout

R, T, D, F, U, E, V = 2, 3, 4, 5, 6, 7, 11
RNG = np.random.default_rng(0)


def random(*shape):
    return ops.convert_to_tensor(RNG.normal(size=shape).astype("float32"))


def make_cell(cell, feed_dim=0):
    layer = DecoderCell(U, cell)
    layer.build(D, feed_dim)
    for weight in layer.weights:
        weight.assign(RNG.normal(size=weight.shape) * 0.5)
    return layer


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_all_steps_at_once_equal_one_after_the_other(cell):
    layer, sequence = make_cell(cell), random(R, T, D)
    state = [random(R, U) for _ in layer.zero_state(R)]
    hiddens, last = layer.run(layer.project(sequence), state)
    for time in range(T):
        state = layer.step(layer.project(sequence[:, time]), None, state)
        np.testing.assert_allclose(hiddens[:, time], state[0], atol=1e-5)
    for one, other in zip(last, state, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_fed_step_equals_keras_with_both_inputs_side_by_side(cell):
    layer = make_cell(cell, feed_dim=F)
    known, feed, state = random(R, D), random(R, F), [random(R, U) for _ in layer.zero_state(R)]
    ahead, bias = layer.ahead_dense.get_weights()
    if cell == "lstm":
        (joint,) = layer.recurrent_dense.get_weights()  # feed, then state
        theirs = keras.layers.LSTMCell(U)
        weights = [np.concatenate([ahead, joint[:F]]), joint[F:], bias]
    else:
        recurrent, recurrent_bias = layer.recurrent_dense.get_weights()
        theirs = keras.layers.GRUCell(U, reset_after=True)
        weights = [np.concatenate([ahead, *layer.feed_dense.get_weights()]), recurrent, [bias, recurrent_bias]]
    theirs.build((None, D + F))
    theirs.set_weights([np.array(weight) for weight in weights])
    _, expected = theirs(ops.concatenate([known, feed], axis=-1), state)
    for one, other in zip(layer.step(layer.project(known), feed, state), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_the_forget_gate_of_an_lstm_starts_open():
    layer = DecoderCell(U)
    layer.build(D)
    bias = ops.convert_to_numpy(layer.ahead_dense.bias).reshape(4, U)
    np.testing.assert_array_equal(bias, [[0] * U, [1] * U, [0] * U, [0] * U])


def test_an_unknown_cell_is_an_error():
    with pytest.raises(ValueError, match=r"`cell` must be one of \['gru', 'lstm'\]. Received: cell='rnn'"):
        DecoderCell(U, "rnn")


def make_readout(context_dim=D, **options):
    readout = Readout(V, E, U, **options)
    readout.build(U, context_dim)
    return readout


def dense(layer, inputs):
    kernel, *bias = layer.get_weights()
    return ops.convert_to_numpy(inputs) @ kernel + (bias[0] if bias else 0)


def test_a_deep_readout_is_the_formula_of_the_paper():
    readout, hidden, context, embedded = make_readout(deep=True), random(R, T, U), random(R, T, D), random(R, T, E)
    vector = readout(hidden, context, embedded)
    expected = np.tanh(dense(readout.hidden_dense, hidden) + dense(readout.context_dense, context) + embedded)
    np.testing.assert_allclose(vector, expected, atol=1e-5)
    np.testing.assert_allclose(readout.to_logits(vector), dense(readout.output_dense, vector), atol=1e-5)


def test_tied_logits_are_products_with_the_embeddings():
    readout, embeddings = make_readout(tied=True), random(V, E)
    readout.bias.assign(np.arange(V))
    vector = readout(random(R, T, U), random(R, T, D), None)
    assert vector.shape == (R, T, E)
    expected = ops.convert_to_numpy(vector) @ ops.convert_to_numpy(embeddings).T + np.arange(V)
    np.testing.assert_allclose(readout.to_logits(vector, embeddings), expected, atol=1e-5)


def test_without_context_the_hidden_state_is_the_vector():
    hidden = random(R, T, U)
    assert make_readout(context_dim=0)(hidden, None, None) is hidden


@pytest.mark.parametrize("layer", [DecoderCell(U, "gru"), Readout(V, E, U, deep=True, dropout=0.1, variational=True)])
def test_every_argument_is_in_the_config(layer):
    config = layer.get_config()
    assert type(layer).from_config(config).get_config() == config
    assert config["units"] == U
