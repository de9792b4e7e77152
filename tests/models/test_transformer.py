import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from attention_apps.decoding import DecodingOptions, beam_search
from attention_apps.decoding.scorers import PER_ITEM
from attention_apps.models.copying import PointerGenerator
from attention_apps.models.seq2seq import Seq2Seq
from attention_apps.models.transformer import TransformerDecoder, TransformerEncoder
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

E = 6
SIZES = {"num_layers": 2, "num_heads": 3, "hidden_dim": 5}


def make(stack):
    layer = stack(V, E, **SIZES, name="stack")
    if stack is TransformerEncoder:
        layer.build({"token_ids": (None, None)})
    else:
        layer.build((None, None), {"values": (None, None, 7)})
    return layer


@pytest.mark.parametrize("stack", [TransformerEncoder, TransformerDecoder])
def test_weights_keep_the_paths_that_saved_weights_are_found_by(stack):
    paths = {weight.path for weight in make(stack).weights}
    attention = "attention" if stack is TransformerEncoder else "self_attention"
    assert {
        "stack/embedding/embeddings",
        f"stack/block_1/{attention}/query/kernel",
        "stack/block_1/feed_forward/norm/gamma",
        "stack/block_1/feed_forward/output/bias",
        "stack/norm/beta",
    } <= paths
    assert not any("block_2" in path for path in paths)


@pytest.mark.parametrize("stack", [TransformerEncoder, TransformerDecoder])
def test_embeddings_are_scaled_and_have_positions(stack):
    layer, ids = make(stack), np.array([[4, 4, 4]])
    embedded = ops.convert_to_numpy(layer._embed(ids))
    later = ops.convert_to_numpy(layer._embed(ids[:, :1], position=np.array([2])))
    np.testing.assert_allclose(later[0, 0], embedded[0, 2], atol=1e-6)
    word = ops.convert_to_numpy(layer.embedding.embeddings)[4] * E**0.5
    np.testing.assert_allclose(embedded[0, 0], word + np.array([0, 1] * 3), atol=1e-6)


@pytest.mark.parametrize("stack", [TransformerEncoder, TransformerDecoder])
def test_no_layers_are_an_error(stack):
    with pytest.raises(ValueError, match="`num_layers` must be at least 1. Received: num_layers=0"):
        stack(V, E, num_layers=0, num_heads=2)


SOURCE = {"token_ids": np.array([[4, 5, 6, 7, 8], [9, 4, 5, 0, 0]], "int32")}


def make_encoder(**arguments):
    keras.utils.set_random_seed(1)
    encoder = TransformerEncoder(20, 8, **{"num_layers": 2, "num_heads": 2, "hidden_dim": 12, **arguments})
    encoder.build({"token_ids": (None, None)})
    return encoder


def test_the_memory_has_values_mask_and_source_ids():
    memory = make_encoder()({**SOURCE, "source_ids": SOURCE["token_ids"]})
    assert memory["values"].shape == (2, 5, 8)
    assert ops.convert_to_numpy(memory["mask"]).tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    assert memory["source_ids"].shape == (2, 5)
    assert "source_ids" not in make_encoder()(SOURCE)


def test_shapes_are_known_before():
    shapes = make_encoder().compute_output_shape({"token_ids": (2, 5), "source_ids": (2, 5)})
    assert shapes == {"values": (2, 5, 8), "mask": (2, 5), "source_ids": (2, 5)}


def test_padding_changes_nothing():
    encoder = make_encoder()
    longer = {"token_ids": np.pad(SOURCE["token_ids"], ((0, 0), (0, 3)))}
    np.testing.assert_allclose(encoder(longer)["values"][1, :3], encoder(SOURCE)["values"][1, :3], atol=1e-5)


def test_order_counts():
    encoder = make_encoder()
    swapped = {"token_ids": SOURCE["token_ids"][:, [1, 0, 2, 3, 4]]}
    assert np.abs(encoder(swapped)["values"] - encoder(SOURCE)["values"])[0, 2].max() > 1e-4


def test_it_copies_with_a_shared_embedding_and_is_saved_and_loaded(tmp_path):
    decoder = PointerGenerator(TransformerDecoder(20, 8, num_layers=1, num_heads=2, hidden_dim=12, max_length=6))
    model = Seq2Seq(make_encoder(), decoder, shared_embedding=True)
    source = {**SOURCE, "source_ids": np.where(SOURCE["token_ids"] == 8, 24, SOURCE["token_ids"])}
    inputs = {"source": source, "tokens": np.array([[1, 4, 24], [1, 5, 6]], "int32")}
    logits = model(inputs)
    assert logits.shape == (2, 3, 25)
    assert model.encoder.embedding is model.decoder.decoder.embedding
    model.save(tmp_path / "model.keras")
    np.testing.assert_allclose(keras.models.load_model(tmp_path / "model.keras")(inputs), logits, atol=1e-5)


def test_every_argument_of_the_encoder_is_in_the_config():
    arguments = {"num_layers": 3, "num_heads": 2, "hidden_dim": 5, "dropout": 0.25}
    config = TransformerEncoder(7, 4, **arguments).get_config()
    assert {name: config[name] for name in ("vocabulary_size", "embedding_dim", *arguments)} == {
        **{"vocabulary_size": 7, "embedding_dim": 4},
        **arguments,
    }


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
    before_and_after = zip(*(keras.tree.flatten(x[PER_ITEM]) for x in (state, after)), strict=True)
    assert all(old is new for old, new in before_and_after)


def test_the_cache_has_room_for_the_steps_that_follow():
    decoder, memory, tokens = make_transformer(), make_memory(), make_tokens(B, T)
    forced = decoder(tokens, memory)
    state, logits = decoder.init_state(memory, max_length=T), []
    assert {block["keys"].shape[2] for block in state["blocks"]} == {T}
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


def test_the_gradient_of_the_output_matrix_is_not_computed_for_each_example():
    decoder, memory, tokens = make_transformer(), make_memory(), make_tokens(B, T)
    decoder(tokens, memory)

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(decoder(tokens, memory) ** 2)
        return tape.gradient(loss, decoder.trainable_variables)

    width = decoder.embedding_dim
    tensors = [tensor for op in gradient.get_concrete_function().graph.get_operations() for tensor in op.outputs]
    assert any(tensor.shape == (V, width) for tensor in tensors)
    assert not any(tensor.shape in [(B, V, width), (B, width, V)] for tensor in tensors)


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


def test_every_argument_of_the_decoder_is_in_the_config():
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
