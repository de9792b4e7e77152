import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.layers.sequence_ops import scan_time
from attention_apps.layers.transformer import (
    RotaryPosition,
    SinusoidalPositionEncoding,
    TransformerDecoderBlock,
    TransformerEncoderBlock,
)
from tests.layers.contract import (
    ATTENTION_CHECKS,
    assert_close,
    call,
    check_config,
    check_mixed_precision,
    check_stepwise,
    example,
    with_policy,
)
from tests.layers.reference import dense, layer_normalization, multi_head_attention

BATCH, TIME, DIM = 2, 5, 7
TARGET, SOURCE = 3, 5


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


def make_encoder(**kwargs):
    return TransformerEncoderBlock(num_heads=2, key_dim=3, hidden_dim=11, **kwargs)


def make_decoder(**kwargs):
    return TransformerDecoderBlock(num_heads=2, key_dim=3, hidden_dim=11, **kwargs)


# Without a cache a decoder block knows nothing of the positions before: its own test below goes stepwise.
@pytest.mark.parametrize("check", [check for check in ATTENTION_CHECKS if check is not check_stepwise])
def test_the_decoder_keeps_the_contract_of_the_attention_layers(check):
    if check is check_mixed_precision and keras.backend.backend() == "jax":
        pytest.skip("JAX has no gradient of its fused attention in float16 on a CPU")
    check(make_decoder)


def test_the_encoder_is_the_formula_of_the_paper():
    block, (_, inputs, mask) = make_encoder(), example()
    output = block(ops.convert_to_tensor(inputs), mask=ops.convert_to_tensor(mask))
    normal = layer_normalization(block.attention_norm, inputs)
    hidden = inputs + multi_head_attention(block.attention, normal, normal, mask[:, None])[0]
    assert_close(output, hidden + expected_feed_forward(block.feed_forward, hidden))


def test_the_decoder_is_the_formula_of_the_paper():
    block, (query, value, mask) = make_decoder(), example()
    output, weights, _ = call(block, query, value, mask)
    normal = layer_normalization(block.self_norm, query)
    hidden = query + multi_head_attention(block.self_attention, normal, normal, np.tri(TARGET, dtype=bool))[0]
    normal = layer_normalization(block.cross_norm, hidden)
    context, expected = multi_head_attention(block.cross_attention, normal, value, mask[:, None])
    hidden = hidden + context
    assert_close((weights, output), (expected, hidden + expected_feed_forward(block.feed_forward, hidden)))


def expected_feed_forward(layer, inputs):
    return dense(layer.output_dense, np.maximum(dense(layer.hidden_dense, layer_normalization(layer.norm, inputs)), 0))


def test_the_memory_may_have_another_size():
    query, value, mask = example(query_dim=4)
    output, weights, _ = call(make_decoder(), query, value, mask)
    assert (output.shape, weights.shape) == ((BATCH, TARGET, 4), (BATCH, TARGET, SOURCE))


def test_going_stepwise_with_a_cache_changes_nothing():
    block, (query, value, mask) = make_decoder(), example()
    expected = call(block, query, value, mask)[:2]
    value, mask = ops.convert_to_tensor(value), ops.convert_to_tensor(mask)

    def step(part, state):
        outputs = block(ops.expand_dims(part, 1), value, value_mask=mask, prepared=prepared, state=state)
        return (outputs[0][:, 0], outputs[1][:, 0]), outputs[2]

    def run(query):
        return scan_time(step, query, block.init_state(value, max_length=TARGET))[0]

    prepared = block.prepare(value)
    assert_close(run(ops.convert_to_tensor(query)), expected)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        assert_close(tf.function(run)(ops.convert_to_tensor(query)), expected)


def test_a_later_target_changes_nothing_before_it():
    block, (query, value, mask) = make_decoder(), example()
    before = call(block, query, value, mask)[0]
    query[:, -1] += 1
    assert_close(call(block, query, value, mask)[0][:, :-1], before[:, :-1])


def test_padding_changes_nothing_in_the_encoder():
    block, (_, inputs, mask) = make_encoder(), example()
    before = block(ops.convert_to_tensor(inputs), mask=ops.convert_to_tensor(mask))
    changed = np.where(mask[..., None], inputs, 9).astype("float32")
    after = block(ops.convert_to_tensor(changed), mask=ops.convert_to_tensor(mask))
    assert_close(ops.convert_to_numpy(after)[mask], ops.convert_to_numpy(before)[mask])


def test_the_encoder_is_saved_with_every_argument_and_trains(tmp_path):
    check_config(lambda: make_encoder(dropout=0.25, activation="gelu"))
    inputs, mask = keras.Input((None, DIM)), keras.Input((None,), dtype="bool")
    model = keras.Model([inputs, mask], make_encoder(dropout=0.25, activation="gelu")(inputs, mask=mask))
    model.save(tmp_path / "model.keras")
    batch = list(example()[1:])
    assert_close(keras.models.load_model(tmp_path / "model.keras")(batch), model(batch))
    model.compile("adam", "mse")
    assert np.isfinite(model.fit(batch, batch[0], verbose=0).history["loss"][0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_mixed_precision_reaches_every_part_of_the_encoder(dtype):
    block = with_policy(f"mixed_{dtype}", make_encoder)
    output = block(ops.convert_to_tensor(example()[1]))
    layers = block._flatten_layers(include_self=False)
    assert keras.backend.standardize_dtype(output.dtype) == dtype
    assert {layer.compute_dtype for layer in layers} == {dtype}


@pytest.mark.parametrize("make_block", [make_encoder, make_decoder])
def test_dropout_is_for_training_only(make_block):
    block, value = make_block(dropout=0.5), example()[1]
    inputs = [ops.convert_to_tensor(value)] * (1 if make_block is make_encoder else 2)
    first, second = (ops.convert_to_numpy(first_of(block(*inputs, training=True))) for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    assert_close(first_of(block(*inputs, training=False)), first_of(block(*inputs)))


def first_of(outputs):
    return outputs[0] if isinstance(outputs, tuple) else outputs


@pytest.mark.parametrize("block", [TransformerEncoderBlock, TransformerDecoderBlock])
def test_the_hidden_size_must_be_positive(block):
    with pytest.raises(ValueError, match="`hidden_dim` must be a positive integer. Received: hidden_dim=0"):
        block(num_heads=2, key_dim=3, hidden_dim=0)
