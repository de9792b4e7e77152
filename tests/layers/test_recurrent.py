import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.layers.recurrent import DecoderCell, PyramidalBidirectionalLSTM, Recurrent

B, T, D, U = 3, 7, 4, 5
ROWS, FEED = 2, 6  # of DecoderCell
RNG = np.random.default_rng(0)
SEQUENCE = RNG.normal(size=(B, T, D)).astype("float32")
MASKS = {
    "none": None,
    "padded": np.arange(T) < np.array([[7], [4], [1]]),
    "holes": RNG.random((B, T)) > 0.4,
    "empty row": np.array([[False] * T, [True] * T, [True] * 3 + [False] * 4]),
}

tensorflow_only = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the TensorFlow kernels")


def make_layer(cell, bidirectional):
    layer = Recurrent(U, cell=cell, bidirectional=bidirectional)
    layer.build((None, None, D))
    for weight in layer.weights:
        weight.assign(RNG.normal(size=weight.shape) * 0.5)
    return layer


def make_state(layer):
    return [
        RNG.normal(size=(B, U)).astype("float32") for _ in range(len(layer.directions) * layer._states_per_direction)
    ]


def run_with_gradients(run, layer, mask, state):
    import tensorflow as tf

    sequence, state = tf.constant(SEQUENCE), [tf.constant(s) for s in state or []]
    with tf.GradientTape() as tape:
        tape.watch([sequence, *state])
        outputs, last = run(sequence, mask, state or None)
        loss = tf.reduce_sum(tf.sin(outputs)) + sum(tf.reduce_sum(s * s) for s in last)
    weights = [weight.value for weight in layer.trainable_variables]
    return [outputs, *last, *tape.gradient(loss, [sequence, *state, *weights])]


@tensorflow_only
@pytest.mark.parametrize("sees_gpu", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_keras_own_layer_runs_in_training_if_a_gpu_is_visible(training, sees_gpu, monkeypatch):
    from attention_apps.layers import recurrent_kernels

    layer = make_layer("lstm", True)
    expected, _ = layer(SEQUENCE, mask=MASKS["padded"])
    monkeypatch.setattr(recurrent_kernels, "sees_gpu", lambda: sees_gpu)
    other = "_run_kernel" if training and sees_gpu else "_run_keras"
    monkeypatch.setattr(Recurrent, other, None)  # not to be called
    outputs, _ = layer(SEQUENCE, mask=MASKS["padded"], training=training)
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-6)


@tensorflow_only
@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_outputs_and_gradients_equal_those_of_keras(cell, bidirectional, mask, with_state):
    layer = make_layer(cell, bidirectional)
    state = make_state(layer) if with_state else None
    ours = run_with_gradients(layer._run_kernel, layer, MASKS[mask], state)
    keras_own = run_with_gradients(layer._run_keras, layer, MASKS[mask], state)
    for a, b in zip(ours, keras_own, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@tensorflow_only
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_graph_with_unknown_sizes_gives_the_same(cell, jit_compile):
    import tensorflow as tf

    layer = make_layer(cell, bidirectional=True)

    def gradient(sequence, mask):
        with tf.GradientTape() as tape:
            outputs, _ = layer(sequence, mask=mask)
            loss = tf.reduce_sum(outputs**2)
        return [outputs, *tape.gradient(loss, [weight.value for weight in layer.trainable_variables])]

    signature = [tf.TensorSpec((None, None, D)), tf.TensorSpec((None, None), tf.bool)]
    graph = tf.function(gradient, input_signature=signature, jit_compile=jit_compile)
    arguments = tf.constant(SEQUENCE), tf.constant(MASKS["padded"])
    for a, b in zip(graph(*arguments), gradient(*arguments), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_shapes_of_outputs_and_states(cell, bidirectional):
    layer = Recurrent(U, cell=cell, bidirectional=bidirectional)
    outputs, states = layer(SEQUENCE)
    directions = 2 if bidirectional else 1
    assert tuple(outputs.shape) == (B, T, U * directions)
    assert [tuple(state.shape) for state in states] == [(B, U)] * directions * (2 if cell == "lstm" else 1)


def test_padding_changes_nothing():
    layer = make_layer("lstm", bidirectional=True)
    long, _ = layer(SEQUENCE, mask=MASKS["padded"])
    short, _ = layer(SEQUENCE[1:2, :4])
    np.testing.assert_allclose(ops.convert_to_numpy(long)[1:2, :4], ops.convert_to_numpy(short), atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_reaches_the_inside(policy):
    layer = Recurrent(U, bidirectional=True, dtype=policy)
    outputs, _ = layer(SEQUENCE)
    assert keras.backend.standardize_dtype(outputs.dtype) == policy.removeprefix("mixed_")
    assert all("float32" in str(weight.dtype) for weight in layer.weights)


def test_a_saved_model_comes_back(tmp_path):
    source = keras.Input((None, D))
    model = keras.Model(source, Recurrent(U, cell="gru", bidirectional=True)(source)[0])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(ops.convert_to_numpy(again(SEQUENCE)), ops.convert_to_numpy(model(SEQUENCE)), atol=1e-6)
    config = again.layers[-1].get_config()
    assert (config["units"], config["cell"], config["bidirectional"]) == (U, "gru", True)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"`units` must be a positive integer. Received: units=0"):
        Recurrent(0)
    with pytest.raises(ValueError, match=r"`cell` must be one of \['gru', 'lstm'\]. Received: cell='rnn'"):
        Recurrent(3, cell="rnn")


PYRAMIDAL_B, PYRAMIDAL_T, PYRAMIDAL_D, PYRAMIDAL_U = 2, 7, 3, 5
PYRAMIDAL_SEQUENCE = RNG.normal(size=(PYRAMIDAL_B, PYRAMIDAL_T, PYRAMIDAL_D)).astype("float32")
MASK = np.arange(PYRAMIDAL_T) < np.array([[7], [4]])


@pytest.mark.parametrize(("factor", "length"), [(1, 7), (2, 4), (3, 3)])
def test_time_is_divided_and_masks_follow(factor, length):
    outputs, mask = PyramidalBidirectionalLSTM(PYRAMIDAL_U, factor=factor)(PYRAMIDAL_SEQUENCE, mask=MASK)
    assert tuple(outputs.shape) == (PYRAMIDAL_B, length, 2 * PYRAMIDAL_U)
    assert ops.convert_to_numpy(mask).sum(1).tolist() == [length, -(-4 // factor)]


def test_it_equals_a_bidirectional_lstm_over_joined_pairs():
    layer = PyramidalBidirectionalLSTM(PYRAMIDAL_U)
    outputs, _ = layer(PYRAMIDAL_SEQUENCE[:, :6])
    joined = PYRAMIDAL_SEQUENCE[:, :6].reshape(PYRAMIDAL_B, 3, 2 * PYRAMIDAL_D)
    forward, backward = (direction(joined)[0] for direction in layer.recurrent.directions)
    expected = np.concatenate([ops.convert_to_numpy(forward), ops.convert_to_numpy(backward)[:, ::-1]], axis=-1)
    np.testing.assert_allclose(ops.convert_to_numpy(outputs), expected, atol=1e-5)


def test_what_lies_under_the_padding_changes_nothing():
    layer = PyramidalBidirectionalLSTM(PYRAMIDAL_U)
    mask = np.arange(PYRAMIDAL_T) < np.array([[7], [3]])  # the second pair of the second row is half padding
    noise = np.where(mask[..., None], PYRAMIDAL_SEQUENCE, 99).astype("float32")
    clean, _ = layer(PYRAMIDAL_SEQUENCE, mask=mask)
    noisy, _ = layer(noise, mask=mask)
    np.testing.assert_allclose(ops.convert_to_numpy(clean), ops.convert_to_numpy(noisy), atol=1e-6)


def test_three_of_them_shorten_eight_times():
    values, mask = (
        ops.convert_to_tensor(RNG.normal(size=(PYRAMIDAL_B, 33, PYRAMIDAL_D)).astype("float32")),
        ops.ones((PYRAMIDAL_B, 33), "bool"),
    )
    for _ in range(3):
        values, mask = PyramidalBidirectionalLSTM(PYRAMIDAL_U)(values, mask=mask)
    assert tuple(values.shape) == (PYRAMIDAL_B, 5, 2 * PYRAMIDAL_U)


def test_a_saved_pyramidal_model_comes_back(tmp_path):
    source = keras.Input((None, PYRAMIDAL_D))
    model = keras.Model(source, PyramidalBidirectionalLSTM(PYRAMIDAL_U, factor=3)(source)[0])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        ops.convert_to_numpy(again(PYRAMIDAL_SEQUENCE)), ops.convert_to_numpy(model(PYRAMIDAL_SEQUENCE)), atol=1e-6
    )
    assert again.layers[-1].get_config()["factor"] == 3


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_reaches_the_inside_of_the_pyramid(policy):
    outputs, _ = PyramidalBidirectionalLSTM(PYRAMIDAL_U, dtype=policy)(PYRAMIDAL_SEQUENCE, mask=MASK)
    assert keras.backend.standardize_dtype(outputs.dtype) == policy.removeprefix("mixed_")


def test_a_wrong_factor_is_named():
    with pytest.raises(ValueError, match=r"`factor` must be a positive integer. Received: factor=0"):
        PyramidalBidirectionalLSTM(PYRAMIDAL_U, factor=0)


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
    layer, sequence = make_cell(cell), random(ROWS, T, D)
    state = [random(ROWS, U) for _ in layer.zero_state(ROWS)]
    hiddens, last = layer.run(layer.ahead_dense(sequence), state)
    for time in range(T):
        state = layer.step(layer.ahead_dense(sequence[:, time]), None, state)
        np.testing.assert_allclose(hiddens[:, time], state[0], atol=1e-5)
    for one, other in zip(last, state, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_fed_step_equals_keras_with_both_inputs_side_by_side(cell):
    layer = make_cell(cell, feed_dim=FEED)
    known, feed, state = random(ROWS, D), random(ROWS, FEED), [random(ROWS, U) for _ in layer.zero_state(ROWS)]
    ahead, bias = layer.ahead_dense.get_weights()
    if cell == "lstm":
        (joint,) = layer.recurrent_dense.get_weights()  # feed, then state
        theirs = keras.layers.LSTMCell(U)
        weights = [np.concatenate([ahead, joint[:FEED]]), joint[FEED:], bias]
    else:
        recurrent, recurrent_bias = layer.recurrent_dense.get_weights()
        theirs = keras.layers.GRUCell(U, reset_after=True)
        weights = [np.concatenate([ahead, *layer.feed_dense.get_weights()]), recurrent, [bias, recurrent_bias]]
    theirs.build((None, D + FEED))
    theirs.set_weights([np.array(weight) for weight in weights])
    _, expected = theirs(ops.concatenate([known, feed], axis=-1), state)
    for one, other in zip(layer.step(layer.ahead_dense(known), feed, state), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_the_forget_gate_of_an_lstm_starts_open():
    layer = DecoderCell(U)
    layer.build(D)
    bias = ops.convert_to_numpy(layer.ahead_dense.bias).reshape(4, U)
    np.testing.assert_array_equal(bias, [[0] * U, [1] * U, [0] * U, [0] * U])


def test_an_unknown_cell_is_an_error():
    with pytest.raises(ValueError, match=r"`cell` must be one of \['gru', 'lstm'\]. Received: cell='rnn'"):
        DecoderCell(U, "rnn")


def test_every_argument_of_a_cell_is_in_the_config():
    config = DecoderCell(U, "gru").get_config()
    assert DecoderCell.from_config(config).get_config() == config
    assert config["units"] == U
