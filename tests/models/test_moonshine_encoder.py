import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from attention_apps.layers import RotaryPosition
from attention_apps.models.moonshine_encoder import (
    MIN_SAMPLES,
    SAMPLES_PER_FRAME,
    MoonshineEncoder,
    RotarySelfAttention,
    attend,
    num_frames,
)
from tests.layers.contract import with_policy
from tests.models.moonshine_models import BATCH, DIM, HEADS, SIZES, SOURCE, TIME, make_encoder, make_source, make_values


def test_the_memory_has_values_and_mask():
    memory = make_encoder()(make_source())
    assert memory["values"].shape == (2, 9, DIM)
    assert ops.convert_to_numpy(ops.sum(memory["mask"], axis=1)).tolist() == [9, 5]


def test_a_batch_gives_the_values_of_its_items_alone():
    encoder, source = make_encoder(), make_source()
    together = encoder(source)["values"]
    for index, length in enumerate(source["lengths"]):
        alone = encoder({"waveform": source["waveform"][index : index + 1, :length]})["values"]
        np.testing.assert_allclose(together[index : index + 1, : alone.shape[1]], alone, atol=1e-5)


def test_all_samples_are_real_without_lengths():
    encoder, source = make_encoder(), make_source((4000, 4000))
    expected = encoder(source)
    memory = encoder({"waveform": source["waveform"]})
    np.testing.assert_array_equal(memory["mask"], expected["mask"])
    np.testing.assert_array_equal(memory["values"], expected["values"])


def test_the_number_of_frames_is_that_of_the_convolutions():
    for samples in (MIN_SAMPLES, 1000, 4000):
        frames = make_encoder()({"waveform": np.zeros((1, samples), "float32")})["values"].shape[1]
        assert num_frames(samples) == frames
    assert num_frames(MIN_SAMPLES) == 1
    assert num_frames(MIN_SAMPLES - 1) == num_frames(0) == 0
    assert num_frames(MIN_SAMPLES + 5 * SAMPLES_PER_FRAME) == 6
    assert ops.convert_to_numpy(num_frames(np.array([100, 1000, 4000]))).tolist() == [0, 1, 9]


def test_order_counts():
    """Rotary positions: the blocks without them would give the reversed values for reversed frames."""
    encoder, frames = make_encoder(), np.random.default_rng(1).normal(size=(1, 6, DIM)).astype("float32")
    mask = np.ones((1, 6), bool)
    forward, backward = (encoder._transform(ops.convert_to_tensor(x), mask) for x in (frames, frames[:, ::-1]))
    assert np.abs(forward - backward[:, ::-1]).max() > 1e-3


def test_an_item_too_short_for_a_frame_leaves_the_others_alone():
    encoder, source = make_encoder(), make_source((4000, 100))
    memory = encoder(source)
    assert not ops.any(memory["mask"][1])
    assert np.isfinite(memory["values"]).all()
    alone = encoder({"waveform": source["waveform"][:1]})
    np.testing.assert_allclose(memory["values"][:1], alone["values"], atol=1e-5)


def test_gradients_are_finite_and_reach_every_weight():
    encoder, source = make_encoder(dropout=0.1), make_source((4000, 100))
    with tf.GradientTape() as tape:
        loss = ops.sum(ops.square(encoder(source, training=True)["values"][:1]))
    for variable, gradient in zip(
        encoder.trainable_variables,
        tape.gradient(loss, [variable.value for variable in encoder.trainable_variables]),
        strict=True,
    ):
        assert np.isfinite(gradient).all(), variable.path
        assert np.abs(gradient).max() > 0, variable.path


def test_a_graph_with_unknown_sizes_gives_the_same():
    encoder, source = make_encoder(), make_source()
    graph = tf.function(
        lambda waveform, lengths: encoder({"waveform": waveform, "lengths": lengths}),
        input_signature=[tf.TensorSpec((None, None)), tf.TensorSpec((None,), tf.int32)],
    )
    np.testing.assert_allclose(graph(**source)["values"], encoder(source)["values"], atol=1e-5)


def test_half_precision_is_near():
    expected = make_encoder()
    encoder = with_policy("mixed_float16", lambda: make_encoder())
    encoder.set_weights(expected.get_weights())
    values = encoder(make_source())["values"]
    assert keras.backend.standardize_dtype(values.dtype) == "float16"
    np.testing.assert_allclose(values, expected(make_source())["values"], atol=0.05)


def test_shapes_are_known_before():
    shapes = make_encoder().compute_output_shape({"waveform": (2, 4000), "lengths": (2,)})
    assert shapes == {"values": (2, 9, DIM), "mask": (2, 9)}
    assert make_encoder().compute_output_shape({"waveform": (None, None)})["values"] == (None, None, DIM)


def test_every_argument_is_in_the_configuration():
    arguments = {**SIZES, "dropout": 0.25}
    config = MoonshineEncoder.from_config(MoonshineEncoder(**arguments).get_config()).get_config()
    assert {name: config[name] for name in arguments} == arguments


def test_sizes_that_do_not_fit_are_errors():
    with pytest.raises(ValueError, match="`dim` must be a multiple of `num_heads`=8. Received: dim=20"):
        MoonshineEncoder(dim=20)
    with pytest.raises(ValueError, match="`rotary_dim` must be at most 5. Received: rotary_dim=6"):
        MoonshineEncoder(**{**SIZES, "rotary_dim": 6})


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
    attention, hidden = RotarySelfAttention(HEADS, RotaryPosition(2)), make_values(BATCH, TIME, DIM)
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
