import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.layers.position_encodings import RotaryPosition, SinusoidalPositionEncoding
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


HEADS, ROTARY = 3, 4


def make_inputs(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def rotate(vector, position, max_wavelength=10000):
    """Equation 34, pair by pair."""
    rotated = vector.copy()
    for pair in range(ROTARY // 2):
        angle = position / max_wavelength ** (2 * pair / ROTARY)
        one, other = vector[pair], vector[ROTARY // 2 + pair]
        rotated[pair] = one * np.cos(angle) - other * np.sin(angle)
        rotated[ROTARY // 2 + pair] = other * np.cos(angle) + one * np.sin(angle)
    return rotated


def test_rotary_position_is_the_formula_of_the_paper():
    inputs = make_inputs(BATCH, HEADS, TIME, DIM)
    expected = np.stack([np.apply_along_axis(rotate, -1, inputs[:, :, time], time) for time in range(TIME)], axis=2)
    assert_close(RotaryPosition(ROTARY)(inputs), expected)


def test_a_step_is_rotated_by_its_position():
    inputs = make_inputs(BATCH, HEADS, 1, DIM)
    rotated = RotaryPosition(ROTARY, max_wavelength=50)(inputs, position=np.array([3, 0], "int32"))
    assert_close(rotated[0], np.apply_along_axis(rotate, -1, inputs[0], 3, max_wavelength=50))
    assert_close(rotated[1], inputs[1])


def test_products_depend_on_the_distance_only():
    rotary, (query, key) = RotaryPosition(ROTARY), make_inputs(2, 1, 1, 1, DIM)
    products = [
        ops.sum(rotary(query, position=np.array([place])) * rotary(key, position=np.array([place + 2])))
        for place in (0, 5, 40)
    ]
    np.testing.assert_allclose(products, products[0], rtol=1e-4)


def test_prepared_positions_give_the_same():
    rotary, inputs = RotaryPosition(ROTARY), make_inputs(BATCH, HEADS, TIME, DIM)
    position = np.array([1, 4], "int32")
    assert_close(
        rotary(inputs, prepared=rotary.prepare(TIME, DIM, position)),
        rotary(inputs, position=position),
    )


def test_all_features_can_be_rotated():
    inputs = make_inputs(BATCH, HEADS, TIME, ROTARY)
    assert_close(RotaryPosition(ROTARY)(inputs)[0, 1, 3], rotate(inputs[0, 1, 3], 3))


def test_half_precision_is_kept():
    rotary = with_policy("mixed_float16", lambda: RotaryPosition(ROTARY))
    inputs = make_inputs(1, HEADS, 300, DIM)
    rotated = rotary(inputs)
    assert keras.backend.standardize_dtype(rotated.dtype) == "float16"
    assert_close(rotated, RotaryPosition(ROTARY)(inputs), tolerance=1e-2)


def test_rotary_position_is_saved_with_every_argument(tmp_path):
    check_config(lambda: RotaryPosition(ROTARY, max_wavelength=50))
    inputs = keras.Input((HEADS, None, DIM))
    model = keras.Model(inputs, RotaryPosition(ROTARY, max_wavelength=50)(inputs))
    model.save(tmp_path / "model.keras")
    example = make_inputs(BATCH, HEADS, TIME, DIM)
    assert_close(keras.models.load_model(tmp_path / "model.keras")(example), model(example))


def test_bad_sizes_are_errors():
    with pytest.raises(ValueError, match="`rotary_dim` must be even and positive. Received: rotary_dim=3"):
        RotaryPosition(3)
    with pytest.raises(ValueError, match="`max_wavelength` must be positive. Received: max_wavelength=0"):
        RotaryPosition(2, max_wavelength=0)
    with pytest.raises(ValueError, match="at least `rotary_dim`=4 features"):
        RotaryPosition(4)(np.zeros((1, 1, 1, 3), "float32"))
