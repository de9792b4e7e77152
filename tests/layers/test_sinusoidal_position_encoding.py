import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.layers.sinusoidal_position_encoding import SinusoidalPositionEncoding
from tests.layers.contract import assert_close, check_config, with_policy

BATCH, TIME, DIM = 2, 5, 7


def expected_encoding(length, dim, max_wavelength=10000):
    """Section 3.5, entry by entry."""
    encoding = np.zeros((length, dim))
    for position in range(length):
        for index in range(dim):
            angle = position / max_wavelength ** (index // 2 * 2 / dim)
            encoding[position, index] = np.cos(angle) if index % 2 else np.sin(angle)
    return encoding


@pytest.mark.parametrize("dim", [6, DIM])
def test_it_is_the_formula_of_the_paper(dim):
    inputs = np.ones((BATCH, TIME, dim), "float32")
    assert_close(SinusoidalPositionEncoding()(inputs), 1 + np.tile(expected_encoding(TIME, dim), (BATCH, 1, 1)))


def test_a_step_gets_the_encoding_of_its_position():
    encoded = SinusoidalPositionEncoding(max_wavelength=100)(
        ops.zeros((BATCH, 2, DIM)), position=ops.convert_to_tensor(np.array([3, 0], "int32"))
    )
    expected = expected_encoding(TIME, DIM, max_wavelength=100)
    assert_close(encoded, np.stack([expected[3:5], expected[0:2]]))


def test_late_positions_are_exact_in_half_precision():
    layer = with_policy("mixed_float16", SinusoidalPositionEncoding)
    encoded = layer(ops.zeros((1, 3000, DIM), dtype="float16"))
    assert keras.backend.standardize_dtype(encoded.dtype) == "float16"
    assert_close(encoded[0], expected_encoding(3000, DIM), tolerance=2e-3)


def test_it_keeps_the_mask():
    embedded = keras.layers.Embedding(9, DIM, mask_zero=True)(np.array([[4, 0], [5, 6]]))
    encoded = SinusoidalPositionEncoding()(embedded)
    assert_close(encoded._keras_mask, np.array([[1, 0], [1, 1]]))


def test_it_is_saved_with_every_argument(tmp_path):
    check_config(lambda: SinusoidalPositionEncoding(max_wavelength=50))
    inputs = keras.Input((None, DIM))
    model = keras.Model(inputs, SinusoidalPositionEncoding(max_wavelength=50)(inputs))
    model.save(tmp_path / "model.keras")
    example = np.ones((BATCH, TIME, DIM), "float32")
    assert_close(keras.models.load_model(tmp_path / "model.keras")(example), model(example))


def test_the_wavelength_must_be_positive():
    with pytest.raises(ValueError, match="`max_wavelength` must be positive. Received: max_wavelength=0"):
        SinusoidalPositionEncoding(max_wavelength=0)
