import numpy as np
from keras import ops

from attention_apps.layers.rotary_position import RotaryPosition
from attention_apps.models.moonshine_blocks import (
    CrossAttention,
    MoonshineDecoderBlock,
    MoonshineEncoderBlock,
    RotarySelfAttention,
    attend,
)

BATCH, TIME, SOURCE, HEADS, DIM, HIDDEN = 2, 3, 5, 2, 6, 7


def make_values(*shape, seed=0):
    return ops.convert_to_tensor(np.random.default_rng(seed).normal(size=shape).astype("float32"))


def make_rotary():
    return RotaryPosition(2)


def test_attention_is_a_softmax_over_what_is_real():
    query, keys = make_values(BATCH, HEADS, TIME, 3), make_values(BATCH, HEADS, 3, SOURCE, seed=1)
    values = make_values(BATCH, HEADS, SOURCE, 3, seed=2)
    mask = np.array([1, 1, 0, 1, 0], bool)
    context, weights = attend(query, keys, values, mask)
    scores = np.exp(np.matmul(query, keys))[..., mask]
    expected = scores / scores.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(ops.convert_to_numpy(weights)[..., mask], expected, rtol=1e-4)
    assert (ops.convert_to_numpy(weights)[..., ~mask] == 0).all()
    np.testing.assert_allclose(context, np.matmul(weights, values), atol=1e-5)


def test_self_attention_with_a_cache_equals_all_at_once():
    attention, hidden = RotarySelfAttention(HEADS, make_rotary()), make_values(BATCH, TIME, DIM)
    rotary, head = attention.rotary, DIM // HEADS
    attention.build((None, DIM))
    causal = np.tril(np.ones((TIME, TIME), bool))
    expected, _ = attention(ops.reshape(hidden, (-1, DIM)), rotary.prepare(TIME, head), causal)
    expected = ops.reshape(expected, (BATCH, TIME, DIM))
    cache = {name: ops.zeros((BATCH, HEADS, TIME, head)) for name in ("keys", "values")}
    for time in range(TIME):
        places = np.arange(BATCH * HEADS, dtype="int32")[:, None] * TIME + time
        rotation = rotary.prepare(1, head, np.full((BATCH,), time))
        context, cache = attention(hidden[:, time], rotation, np.arange(TIME) <= time, cache=cache, places=places)
        np.testing.assert_allclose(context, expected[:, time], atol=1e-5)


def test_rows_of_an_item_share_its_keys_and_values():
    attention, memory = CrossAttention(HEADS), make_values(BATCH, SOURCE, 4, seed=1)
    attention.build((None, DIM), 4)
    mask = np.ones((BATCH, 1, 1, SOURCE), bool)
    hidden = make_values(BATCH * TIME, DIM)
    shared, weights = attention(hidden, attention.prepare(memory), mask)
    assert weights.shape == (BATCH, HEADS, TIME, SOURCE)
    repeated = attention.prepare(ops.repeat(memory, TIME, axis=0))
    alone, _ = attention(hidden, repeated, np.repeat(mask, TIME, axis=0))
    np.testing.assert_allclose(shared, alone, atol=1e-5)


def test_an_encoder_block_sees_all_and_a_decoder_block_the_past_only():
    rotary = make_rotary()
    rotation = rotary.prepare(TIME, DIM // HEADS)
    hidden = make_values(TIME, DIM)
    changed = ops.concatenate([hidden[:-1], -hidden[-1:]], axis=0)
    encoder = MoonshineEncoderBlock(HEADS, HIDDEN, rotary)
    encoder.build((None, DIM))
    mask = np.ones((1, 1, 1, TIME), bool)
    before, after = (encoder(inputs, rotation, mask) for inputs in (hidden, changed))
    assert np.abs(before - after)[0].max() > 1e-4
    decoder = MoonshineDecoderBlock(HEADS, HIDDEN, rotary)
    decoder.build((None, DIM), 4)
    prepared = decoder.cross_attention.prepare(make_values(1, SOURCE, 4))
    causal, seen = np.tril(np.ones((TIME, TIME), bool)), np.ones((1, 1, 1, SOURCE), bool)
    before, after = (decoder(inputs, rotation, causal, prepared, seen)[0] for inputs in (hidden, changed))
    np.testing.assert_allclose(before[:-1], after[:-1], atol=1e-5)
    assert np.abs(before - after)[-1].max() > 1e-3
