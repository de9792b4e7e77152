import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.layers.loops import scan_time
from attention_apps.layers.transformer_blocks import TransformerDecoderBlock, TransformerEncoderBlock
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

BATCH, TARGET, SOURCE, DIM = 2, 3, 5, 7


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
