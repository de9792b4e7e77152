import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from attention_apps.decoding import DecodingOptions, beam_search
from attention_apps.models import TransformerDecoder
from tests.models.decoders import (
    B,
    D,
    N,
    S,
    T,
    V,
    make_memory,
    make_tokens,
    make_transformer,
    stepwise,
)


def test_stepwise_equals_teacher_forced():
    decoder, memory, tokens = make_transformer(), make_memory(), make_tokens(B, T)
    forced = decoder(tokens, memory)
    steps, state = stepwise(decoder, tokens, memory)
    np.testing.assert_allclose(steps, forced, atol=1e-5)
    weights = decoder(tokens, memory, return_dict=True)["attention"]
    np.testing.assert_allclose(state["coverage"], ops.sum(weights, axis=1), atol=1e-5)


def test_several_targets_of_one_source_equal_each_on_its_own():
    decoder, memory, tokens = make_transformer(), make_memory(), make_tokens(B, N, T)
    outputs = decoder(tokens, memory, return_dict=True)
    together, weights = outputs["logits"], outputs["attention"]
    assert together.shape == (B, N, T, V)
    assert weights.shape == (B, N, T, S)
    for index in range(N):
        np.testing.assert_allclose(together[:, index], decoder(tokens[:, index], memory), atol=1e-5)


def test_padding_of_the_source_changes_nothing():
    decoder, memory, tokens = make_transformer(), make_memory(), make_tokens(B, T)
    outputs = decoder(tokens, memory, return_dict=True)
    logits, weights = outputs["logits"], outputs["attention"]
    noisy = {**memory, "values": ops.where(memory["mask"][..., None], memory["values"], 99.0)}
    np.testing.assert_allclose(decoder(tokens, noisy), logits, atol=1e-5)
    assert (ops.convert_to_numpy(weights)[1, :, 3:] == 0).all()


def test_what_depends_on_the_source_only_is_handed_back_as_it_was():
    decoder, memory = make_transformer(), make_memory()
    decoder(make_tokens(B, T), memory)
    state = decoder.init_state(memory)
    _, after = decoder.step(ops.ones((B,), "int32"), state)
    assert all(after[name] is state[name] for name in ("values", "mask"))
    before_and_after = zip(*(keras.tree.flatten(x["prepared"]) for x in (state, after)), strict=True)
    assert all(old is new for old, new in before_and_after)


def test_the_cache_has_room_for_the_steps_that_follow():
    decoder, memory, tokens = make_transformer(), make_memory(), make_tokens(B, T)
    forced = decoder(tokens, memory)
    state, logits = decoder.init_state(memory, max_length=T), []
    assert {block["keys"].shape[1] for block in state["blocks"]} == {T}
    for position in range(T):
        step, state = decoder.step(tokens[:, position], state)
        logits.append(step)
    np.testing.assert_allclose(ops.stack(logits, axis=1), forced, atol=1e-5)


@pytest.mark.parametrize("default", [2, 50])
def test_a_search_writes_the_same_with_a_cache_of_its_own_length(default):
    memory, options = make_memory(), DecodingOptions(beam_size=3, max_length=7, min_length=7)
    large, small = make_transformer(max_length=50), make_transformer(max_length=default)
    for decoder in (large, small):
        decoder(make_tokens(B, T), memory)
    small.set_weights(large.get_weights())
    expected = beam_search(large.step, large.init_state(memory), options)
    found = beam_search(small.step, small.init_state(memory, options.max_length), options)
    np.testing.assert_array_equal(found.token_ids, expected.token_ids)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)


def test_copied_words_are_read_as_the_unknown_word():
    decoder, memory = make_transformer(), make_memory()
    np.testing.assert_array_equal(
        decoder(np.array([[1, V + 2], [1, V]]), memory), decoder(np.array([[1, 3], [1, 3]]), memory)
    )


def test_a_graph_with_unknown_sizes_gives_the_same():
    decoder, memory, tokens = make_transformer(), make_memory(), make_tokens(B, T)
    expected = decoder(tokens, memory)
    graph = tf.function(
        lambda tokens, values, mask: decoder(tokens, {"values": values, "mask": mask}),
        input_signature=[
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None, None, D)),
            tf.TensorSpec((None, None), tf.bool),
        ],
    )
    np.testing.assert_allclose(graph(tokens, memory["values"], memory["mask"]), expected, atol=1e-5)


def test_every_argument_is_in_the_config():
    arguments = {
        "vocabulary_size": V,
        "embedding_dim": 8,
        "num_layers": 3,
        "num_heads": 2,
        "hidden_dim": 9,
        "max_length": 10,
        "dropout": 0.1,
    }
    config = TransformerDecoder.from_config(TransformerDecoder(**arguments).get_config()).get_config()
    assert {name: config[name] for name in arguments} == arguments


def test_no_layers_are_an_error():
    with pytest.raises(ValueError, match=r"`num_layers` must be at least 1. Received: num_layers=0"):
        TransformerDecoder(V, 8, num_layers=0)
