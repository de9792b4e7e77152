import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from attention_apps.decoding import DecodingOptions, beam_search
from attention_apps.layers import RotaryPosition
from attention_apps.models.moonshine_decoder import CrossAttention, MoonshineDecoder, MoonshineDecoderBlock
from attention_apps.models.moonshine_encoder import MoonshineEncoderBlock
from tests.layers.contract import with_policy
from tests.models.decoders import B, D, N, S, T, make_memory, stepwise
from tests.models.moonshine_models import (
    BATCH,
    DIM,
    HEADS,
    HIDDEN,
    LAYERS,
    SIZES,
    SOURCE,
    TIME,
    VOCABULARY,
    make_decoder,
    make_model,
    make_source,
    make_values,
)


def make_tokens(*shape):
    return np.random.default_rng(1).integers(1, VOCABULARY, shape).astype("int32")


def test_stepwise_equals_teacher_forced():
    decoder, memory, tokens = make_decoder(D), make_memory(), make_tokens(B, T)
    steps, state = stepwise(decoder, tokens, memory)
    np.testing.assert_allclose(steps, decoder(tokens, memory), atol=1e-4)
    assert ops.convert_to_numpy(state["position"]).tolist() == [T] * B


def test_a_step_returns_the_attention_of_teacher_forcing():
    decoder, memory, tokens = make_decoder(D), make_memory(), make_tokens(B, T)
    expected = decoder(tokens, memory, return_dict=True)["attention"]
    state = decoder.init_state(memory, max_length=T)
    assert state["caches"][0]["keys"].shape[2] == T
    for position in range(T):
        outputs, state = decoder.step_with_attention(ops.convert_to_tensor(tokens[:, position]), state)
        np.testing.assert_allclose(outputs["attention"], expected[:, position], atol=1e-5)


def test_several_targets_of_one_source_equal_each_on_its_own():
    decoder, memory, tokens = make_decoder(D), make_memory(), make_tokens(B, N, T)
    together = decoder(tokens, memory, return_dict=True)
    assert together["logits"].shape == (B, N, T, VOCABULARY)
    assert together["attention"].shape == (B, N, T, S)
    assert together["head_attention"].shape == (B, N, LAYERS, HEADS, T, S)
    for index in range(N):
        alone = decoder(tokens[:, index], memory, return_dict=True)
        for name, tensor in alone.items():
            np.testing.assert_allclose(together[name][:, index], tensor, atol=1e-4)


def test_attention_is_the_average_of_the_alignment_heads():
    heads = [(0, 1), (2, 0)]
    decoder = make_decoder(D, alignment_heads=heads)
    outputs = decoder(make_tokens(B, T), make_memory(), return_dict=True)
    expected = np.mean([outputs["head_attention"][:, block, head] for block, head in heads], axis=0)
    np.testing.assert_allclose(outputs["attention"], expected, atol=1e-6)
    np.testing.assert_allclose(ops.sum(outputs["head_attention"], axis=-1), 1.0, atol=1e-5)


def test_padding_of_the_source_changes_nothing():
    decoder, memory, tokens = make_decoder(D), make_memory(), make_tokens(B, T)
    outputs = decoder(tokens, memory, return_dict=True)
    noisy = {**memory, "values": ops.where(memory["mask"][..., None], memory["values"], 99.0)}
    np.testing.assert_allclose(decoder(tokens, noisy), outputs["logits"], atol=1e-4)
    assert (ops.convert_to_numpy(outputs["attention"])[1, :, 3:] == 0).all()


def test_tokens_see_no_later_ones():
    decoder, memory, tokens = make_decoder(D), make_memory(), make_tokens(B, T)
    changed = tokens.copy()
    changed[:, -1] = (changed[:, -1] + 1) % VOCABULARY
    logits, other = decoder(tokens, memory), decoder(changed, memory)
    np.testing.assert_allclose(logits[:, :-1], other[:, :-1], atol=1e-5)
    assert np.abs(logits - other)[:, -1].max() > 1e-3


def test_what_depends_on_the_source_only_is_handed_back_as_it_was():
    decoder = make_decoder(D)
    state = decoder.init_state(make_memory())
    _, after = decoder.step(ops.ones((B,), "int32"), state)
    before_and_after = zip(*(keras.tree.flatten(x["per_item"]) for x in (state, after)), strict=True)
    assert all(old is new for old, new in before_and_after)
    assert after["limit"] is state["limit"]


def test_an_item_ends_when_it_has_as_many_tokens_as_its_recording_can_hold():
    decoder = make_decoder(D, max_tokens_per_frame=0.7)  # of 5 and 3 frames: 3 and 2 tokens
    options = DecodingOptions(beam_size=1, max_length=9, banned_tokens=(2,))
    result = beam_search(decoder.step, decoder.init_state(make_memory()), options)
    assert ops.convert_to_numpy(ops.sum(result.token_ids[:, 0] > 0, axis=1)).tolist() == [3, 2]
    state = decoder.init_state(make_memory())
    for _ in range(3):
        logits, state = decoder.step(ops.ones((B,), "int32"), state)
    assert ops.convert_to_numpy(ops.argmax(logits, axis=-1))[1] == 2


def test_the_longest_target_bounds_the_limit():
    decoder = make_decoder(D, max_tokens_per_frame=3.0, max_length=4)
    state = decoder.init_state(make_memory())
    assert ops.convert_to_numpy(state["limit"]).tolist() == [4, 4]
    assert state["caches"][0]["keys"].shape[2] == 5


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_batch_gives_the_texts_of_its_items_alone(beam_size):
    model, source = make_model(max_tokens_per_frame=1.0), make_source()
    options = DecodingOptions(beam_size=beam_size, max_length=10)

    @tf.function(input_signature=[tf.TensorSpec((None, None)), tf.TensorSpec((None,), tf.int32)])
    def search(waveform, lengths):
        memory = model.encode({"waveform": waveform, "lengths": lengths})
        return beam_search(model.decoder.step, model.decoder.init_state(memory), options)

    together = search(**source)
    for index, length in enumerate(source["lengths"]):
        alone = search(source["waveform"][index : index + 1, :length], source["lengths"][index : index + 1])
        np.testing.assert_array_equal(together.token_ids[index], alone.token_ids[0])
        np.testing.assert_allclose(together.scores[index], alone.scores[0], atol=1e-3)


def test_the_scores_of_a_beam_search_are_those_of_teacher_forcing():
    decoder, memory = make_decoder(D), make_memory()
    options = DecodingOptions(beam_size=3, num_best=3, max_length=6)
    result = beam_search(decoder.step, decoder.init_state(memory), options)
    written = ops.convert_to_numpy(result.token_ids)
    inputs = np.concatenate([np.ones((B, 3, 1), "int32"), written[..., :-1]], axis=-1)
    log_probs = ops.log_softmax(decoder(inputs, memory), axis=-1)
    chosen = np.take_along_axis(ops.convert_to_numpy(log_probs), written[..., None], axis=-1)[..., 0]
    expected = np.sum(np.where(written > 0, chosen, 0), axis=-1)
    np.testing.assert_allclose(result.log_probs, expected, atol=1e-3)


def test_gradients_are_finite_and_reach_every_weight():
    decoder, memory = make_decoder(D, dropout=0.1), make_memory()
    memory["mask"] = ops.convert_to_tensor(np.arange(S) < np.array([[S], [0]]))
    with tf.GradientTape() as tape:
        loss = ops.sum(ops.square(decoder(make_tokens(B, N, T), memory, training=True)))
    variables = decoder.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, [v.value for v in variables]), strict=True):
        assert np.isfinite(gradient).all(), variable.path
        assert np.abs(gradient).max() > 0, variable.path


def test_half_precision_is_near():
    expected = make_decoder(D)
    decoder = with_policy("mixed_float16", lambda: make_decoder(D))
    decoder.set_weights(expected.get_weights())
    memory, tokens = make_memory(), make_tokens(B, T)
    logits = decoder(tokens, memory)
    assert keras.backend.standardize_dtype(logits.dtype) == "float16"
    np.testing.assert_allclose(logits, expected(tokens, memory), atol=0.1, rtol=0.02)


def test_a_model_is_saved_and_loaded(tmp_path):
    model = make_model(max_tokens_per_frame=0.5, alignment_heads=[(1, 0)])
    inputs = {"source": make_source(), "tokens": make_tokens(2, T)}
    logits = model(inputs)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(inputs), logits, atol=1e-4)
    assert loaded.decoder.alignment_heads == [[1, 0]]


def test_every_argument_is_in_the_configuration():
    arguments = {"vocabulary_size": VOCABULARY, **SIZES, "max_length": 10, "max_tokens_per_frame": 0.2}
    arguments = {**arguments, "alignment_heads": [[0, 1]], "dropout": 0.1}
    config = MoonshineDecoder.from_config(MoonshineDecoder(**arguments).get_config()).get_config()
    assert {name: config[name] for name in arguments} == arguments


def test_sizes_that_do_not_fit_are_errors():
    with pytest.raises(ValueError, match="`dim` must be a multiple of `num_heads`=8. Received: dim=20"):
        MoonshineDecoder(VOCABULARY, dim=20)
    with pytest.raises(ValueError, match="`num_layers` must be at least 1. Received: num_layers=0"):
        MoonshineDecoder(VOCABULARY, num_layers=0)
    with pytest.raises(ValueError, match="`alignment_heads` must be"):
        MoonshineDecoder(VOCABULARY, alignment_heads=[(6, 0)])


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
    rotary = RotaryPosition(2)
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
