import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.layers.pyramidal_bidirectional_lstm import PyramidalBidirectionalLSTM

B, T, D, U = 2, 7, 3, 5
RNG = np.random.default_rng(0)
SEQUENCE = RNG.normal(size=(B, T, D)).astype("float32")
MASK = np.arange(T) < np.array([[7], [4]])


@pytest.mark.parametrize(("factor", "length"), [(1, 7), (2, 4), (3, 3)])
def test_time_is_divided_and_masks_follow(factor, length):
    outputs, mask = PyramidalBidirectionalLSTM(U, factor=factor)(SEQUENCE, mask=MASK)
    assert tuple(outputs.shape) == (B, length, 2 * U)
    assert ops.convert_to_numpy(mask).sum(1).tolist() == [length, -(-4 // factor)]


def test_it_equals_a_bidirectional_lstm_over_joined_pairs():
    layer = PyramidalBidirectionalLSTM(U)
    outputs, _ = layer(SEQUENCE[:, :6])
    joined = SEQUENCE[:, :6].reshape(B, 3, 2 * D)
    forward, backward = (direction(joined)[0] for direction in layer.recurrent.directions)
    expected = np.concatenate([ops.convert_to_numpy(forward), ops.convert_to_numpy(backward)[:, ::-1]], axis=-1)
    np.testing.assert_allclose(ops.convert_to_numpy(outputs), expected, atol=1e-5)


def test_what_lies_under_the_padding_changes_nothing():
    layer = PyramidalBidirectionalLSTM(U)
    mask = np.arange(T) < np.array([[7], [3]])  # the second pair of the second row is half padding
    noise = np.where(mask[..., None], SEQUENCE, 99).astype("float32")
    clean, _ = layer(SEQUENCE, mask=mask)
    noisy, _ = layer(noise, mask=mask)
    np.testing.assert_allclose(ops.convert_to_numpy(clean), ops.convert_to_numpy(noisy), atol=1e-6)


def test_three_of_them_shorten_eight_times():
    values, mask = (
        ops.convert_to_tensor(RNG.normal(size=(B, 33, D)).astype("float32")),
        ops.ones((B, 33), "bool"),
    )
    for _ in range(3):
        values, mask = PyramidalBidirectionalLSTM(U)(values, mask=mask)
    assert tuple(values.shape) == (B, 5, 2 * U)


def test_a_saved_model_comes_back(tmp_path):
    source = keras.Input((None, D))
    model = keras.Model(source, PyramidalBidirectionalLSTM(U, factor=3)(source)[0])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(ops.convert_to_numpy(again(SEQUENCE)), ops.convert_to_numpy(model(SEQUENCE)), atol=1e-6)
    assert again.layers[-1].get_config()["factor"] == 3


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_reaches_the_inside(policy):
    outputs, _ = PyramidalBidirectionalLSTM(U, dtype=policy)(SEQUENCE, mask=MASK)
    assert keras.backend.standardize_dtype(outputs.dtype) == policy.removeprefix("mixed_")


def test_a_wrong_factor_is_named():
    with pytest.raises(ValueError, match=r"`factor` must be a positive integer. Received: factor=0"):
        PyramidalBidirectionalLSTM(U, factor=0)
