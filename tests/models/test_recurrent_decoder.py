import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from attention_apps.decoding.scorers import repeat_state
from attention_apps.layers import AdditiveAttention
from attention_apps.models import RecurrentDecoder, Seq2Seq, TextEncoder
from attention_apps.models.recurrent_decoder import Readout
from tests.models.decoders import (
    ATTENTIONS,
    RECURRENT,
    B,
    D,
    E,
    N,
    S,
    T,
    U,
    V,
    make_memory,
    make_recurrent,
    make_tokens,
    stepwise,
)


def randomize(decoder, seed=3):
    """First weights are too small to show a difference."""
    rng = np.random.default_rng(seed)
    for weight in decoder.trainable_variables:
        weight.assign(rng.normal(size=weight.shape) * 0.5)


@pytest.mark.parametrize("options", RECURRENT)
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_stepwise_equals_teacher_forced(attention, options):
    decoder, memory, tokens = make_recurrent(attention, **RECURRENT[options]), make_memory(), make_tokens(B, T)
    decoder(tokens, memory)
    randomize(decoder)
    forced = ops.convert_to_numpy(decoder(tokens, memory))
    steps, _ = stepwise(decoder, tokens, memory)
    assert forced.shape == (B, T, V)
    np.testing.assert_allclose(steps, forced, atol=1e-5)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("options", ["before", "after"])
def test_several_targets_of_one_source_equal_each_on_its_own(attention, options):
    decoder, memory, tokens = make_recurrent(attention, **RECURRENT[options]), make_memory(), make_tokens(B, N, T)
    decoder(tokens, memory)
    randomize(decoder)
    together = decoder(tokens, memory, return_dict=True)
    for index in range(N):
        alone = decoder(tokens[:, index], memory, return_dict=True)
        np.testing.assert_allclose(together["logits"][:, index], alone["logits"], atol=1e-5)
        if attention == "none":
            assert together["attention"] is None
        else:
            np.testing.assert_allclose(together["attention"][:, index], alone["attention"], atol=1e-5)


@pytest.mark.parametrize("options", RECURRENT)
def test_padding_of_the_source_changes_nothing(options):
    decoder, memory, tokens = make_recurrent(**RECURRENT[options]), make_memory(), make_tokens(B, T)
    outputs = decoder(tokens, memory, return_dict=True)
    logits, weights = outputs["logits"], outputs["attention"]
    noisy = {**memory, "values": ops.where(memory["mask"][..., None], memory["values"], 99.0)}
    np.testing.assert_allclose(decoder(tokens, noisy), logits, atol=1e-5)
    assert weights.shape == (B, T, S)
    assert (ops.convert_to_numpy(weights)[1, :, 3:] == 0).all()


def test_the_attention_state_and_the_coverage_come_out():
    decoder, memory, tokens = make_recurrent("coverage"), make_memory(), make_tokens(B, T)
    outputs = decoder(tokens, memory, return_dict=True)
    summed = ops.convert_to_numpy(outputs["attention"]).sum(1)
    _, state = stepwise(decoder, tokens, memory)
    np.testing.assert_allclose(state["coverage"], summed, atol=1e-5)
    np.testing.assert_allclose(outputs["attention_state"]["coverage"], summed, atol=1e-5)


@pytest.mark.parametrize("attend", ["before", "after"])
def test_hard_attention_sums_up_its_choices_to_the_end_of_each_target_only(attend):
    model = Seq2Seq(TextEncoder(V, E, 4), make_recurrent("hard", attend=attend))
    source = {"token_ids": np.full((2, S), 5)}
    tokens = np.array([[1, 2, 0, 0, 0], [1, 6, 7, 5, 4]])
    outputs = model({"source": source, "tokens": tokens}, return_dict=True, training=True)
    entropy = ops.convert_to_numpy(outputs["attention_state"]["entropy"])
    assert 0 < entropy[0] <= np.log(S) + 1e-5  # one step
    assert entropy[1] > 2 * np.log(S)  # five steps, nearly uniform


def test_what_depends_on_the_source_only_is_handed_back_as_it_was():
    decoder, memory = make_recurrent(), make_memory()
    decoder(make_tokens(B, T), memory)
    state = decoder.init_state(memory)
    _, after = decoder.step(ops.ones((B,), "int32"), state)
    assert all(after["per_item"][name] is state["per_item"][name] for name in ("values", "mask", "prepared"))
    assert set(after) == set(state)


@pytest.mark.parametrize("attention", ["none", "additive", "multi-head", "location-sensitive"])
@pytest.mark.parametrize("options", ["before gated deep", "after input feeding"])
def test_hypotheses_of_an_item_may_share_its_source(attention, options):
    decoder, memory, tokens = make_recurrent(attention, **RECURRENT[options]), make_memory(), make_tokens(B, N)
    decoder(tokens, memory)
    randomize(decoder)
    shared = repeat_state(decoder.init_state(memory), N)
    apart = decoder.init_state(
        {**memory, "values": ops.repeat(memory["values"], N, 0), "mask": ops.repeat(memory["mask"], N, 0)}
    )
    for _ in range(2):
        logits, shared = decoder.step(ops.reshape(tokens, (-1,)), shared)
        expected, apart = decoder.step(ops.reshape(tokens, (-1,)), apart)
        np.testing.assert_allclose(logits, expected, atol=1e-5)
    if attention != "none":
        np.testing.assert_allclose(shared["coverage"], apart["coverage"], atol=1e-5)


def test_the_gate_weighs_the_context():
    memory, tokens = make_memory(), make_tokens(B, T)
    gated = make_recurrent(context_gate="scalar")
    gated(tokens, memory)
    gated.gate_dense.kernel.assign(gated.gate_dense.kernel * 0)
    gated.gate_dense.bias.assign([-100.0])  # β = 0: nothing of the source gets through but the first state
    memory["mask"] = ops.ones((B, S), "bool")
    turned = {**memory, "values": ops.flip(memory["values"], axis=1)}
    np.testing.assert_allclose(gated(tokens, memory), gated(tokens, turned), atol=1e-5)


def test_copied_words_are_read_as_the_unknown_word():
    decoder, memory = make_recurrent(), make_memory()
    np.testing.assert_array_equal(
        decoder(np.array([[1, V + 2], [1, V]]), memory), decoder(np.array([[1, 3], [1, 3]]), memory)
    )


def test_tied_embeddings_leave_no_output_matrix():
    memory, tokens = make_memory(), make_tokens(B, T)
    tied, free = make_recurrent(tied_embeddings=True, deep_output=True), make_recurrent(deep_output=True)
    tied(tokens, memory), free(tokens, memory)
    assert free.count_params() - tied.count_params() == V * E


def test_dropout_acts_in_training_only_and_a_variational_mask_stays_for_a_sequence():
    decoder = RecurrentDecoder(V, E, U, attention=None, dropout=0.5, variational=True, initial_state="zeros")
    tokens, memory = np.full((B, T), 5, "int32"), make_memory()
    np.testing.assert_array_equal(decoder(tokens, memory), decoder(tokens, memory))
    decoder.call(tokens, memory)
    dropped = decoder.drop(ops.ones((B, T, E)), training=True)
    assert (ops.convert_to_numpy(dropped) == ops.convert_to_numpy(dropped)[:, :1]).all()
    assert np.abs(decoder(tokens, memory, training=True) - decoder(tokens, memory)).max() > 1e-4


@pytest.mark.parametrize("options", ["before gru two layers", "after gru two layers tied", "two layers, input feeding"])
def test_dropout_acts_between_layers(options):
    feeding = {"attend": "after", "input_feeding": True, "num_layers": 2}
    decoder = make_recurrent(dropout=0.5, **RECURRENT.get(options, feeding))
    memory, tokens = make_memory(), make_tokens(B, T)
    plain = ops.convert_to_numpy(decoder(tokens, memory))
    in_training = tf.function(lambda: decoder(tokens, memory, training=True))
    assert np.isfinite(in_training()).all()
    decoder.drop = lambda tensor: tensor if tensor.shape[-1] == E else 0 * tensor  # all that goes from layer to layer
    dropped = ops.convert_to_numpy(decoder(tokens, memory))
    assert np.abs(plain - dropped).max() > 1e-4
    decoder.drop = lambda tensor: tensor
    decoder.cells[1].ahead_dense.kernel.assign(0 * decoder.cells[1].ahead_dense.kernel)
    np.testing.assert_allclose(decoder(tokens, memory), dropped, atol=1e-6)


@pytest.mark.parametrize("options", ["before", "after", "after input feeding"])
def test_a_graph_with_unknown_sizes_gives_the_same(options):
    decoder, memory, tokens = make_recurrent(**RECURRENT[options]), make_memory(), make_tokens(B, N, T)
    expected = decoder(tokens, memory)

    def run(tokens, values, mask, states):
        return decoder(tokens, {"values": values, "mask": mask, "state": states})

    graph = tf.function(
        run,
        input_signature=[
            tf.TensorSpec((None, None, None), tf.int32),
            tf.TensorSpec((None, None, D)),
            tf.TensorSpec((None, None), tf.bool),
            [tf.TensorSpec((None, 3))] * 2,
        ],
    )
    np.testing.assert_allclose(graph(tokens, memory["values"], memory["mask"], memory["state"]), expected, atol=1e-5)


@pytest.mark.parametrize("attention", ["additive", "location-sensitive", "coverage"])
def test_every_weight_learns(attention):
    decoder, memory, tokens = make_recurrent(attention, context_gate="scalar"), make_memory(), make_tokens(B, T)
    decoder(tokens, memory)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(decoder(tokens, memory) ** 2)
    gradients = tape.gradient(loss, [weight.value for weight in decoder.trainable_variables])
    assert all(gradient is not None for gradient in gradients)
    assert all(np.isfinite(ops.convert_to_numpy(tf.convert_to_tensor(gradient))).all() for gradient in gradients)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_reaches_the_inside(policy):
    attention = AdditiveAttention(9, dtype=policy)
    decoder = RecurrentDecoder(V, E, U, attention=attention, tied_embeddings=True, dtype=policy)
    memory, tokens = make_memory(), make_tokens(B, T)
    memory["values"] = ops.cast(memory["values"], decoder.compute_dtype)
    logits = decoder(tokens, memory)
    steps, _ = stepwise(decoder, tokens, memory)
    assert keras.backend.standardize_dtype(logits.dtype) == policy.removeprefix("mixed_")
    np.testing.assert_allclose(steps.astype("float32"), np.asarray(logits, "float32"), atol=2e-2)


def test_every_argument_is_in_the_config():
    arguments = {
        "vocabulary_size": V,
        "embedding_dim": E,
        "units": U,
        "cell": "gru",
        "num_layers": 2,
        "attend": "before",
        "input_feeding": True,
        "context_gate": "vector",
        "deep_output": True,
        "tied_embeddings": True,
        "dropout": 0.1,
        "variational": True,
        "initial_state": "last",
    }
    decoder = RecurrentDecoder(**arguments, attention=AdditiveAttention(9))
    config = RecurrentDecoder.from_config(decoder.get_config()).get_config()
    assert {name: config[name] for name in arguments} == arguments
    assert config["attention"]["config"]["units"] == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"attend": "never"}, r"`attend` must be one of \('before', 'after'\). Received: attend='never'"),
        ({"context_gate": "soft"}, r"`context_gate` must be one of .* Received: context_gate='soft'"),
        ({"initial_state": "first"}, r"`initial_state` must be one of .* Received: initial_state='first'"),
        ({"num_layers": 0}, r"`num_layers` must be at least 1. Received: num_layers=0"),
        ({"context_gate": "scalar", "attend": "after"}, r"`context_gate` needs an `attention`"),
        ({"cell": "rnn"}, r"`cell` must be one of \['gru', 'lstm'\]. Received: cell='rnn'"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        RecurrentDecoder(V, E, U, attention=AdditiveAttention(9), **arguments)


def test_an_encoder_without_a_last_state_is_named():
    memory = make_memory()
    del memory["state"]
    with pytest.raises(ValueError, match='`initial_state` "last" needs an encoder that gives its `state`'):
        make_recurrent(initial_state="last")(make_tokens(B, T), memory)


RNG = np.random.default_rng(0)


def random(*shape):
    return ops.convert_to_tensor(RNG.normal(size=shape).astype("float32"))


def make_readout(context_dim=D, **options):
    readout = Readout(V, E, U, **options)
    readout.build(U, context_dim)
    return readout


def dense(layer, inputs):
    kernel, *bias = layer.get_weights()
    return ops.convert_to_numpy(inputs) @ kernel + (bias[0] if bias else 0)


def test_a_deep_readout_is_the_formula_of_the_paper():
    readout, hidden, context, embedded = make_readout(deep=True), random(B, T, U), random(B, T, D), random(B, T, E)
    vector = readout(hidden, context, embedded)
    expected = np.tanh(dense(readout.hidden_dense, hidden) + dense(readout.context_dense, context) + embedded)
    np.testing.assert_allclose(vector, expected, atol=1e-5)
    np.testing.assert_allclose(readout.to_logits(vector), dense(readout.output_dense, vector), atol=1e-5)


def test_tied_logits_are_products_with_the_embeddings():
    readout, embeddings = make_readout(tied=True), random(V, E)
    readout.bias.assign(np.arange(V))
    vector = readout(random(B, T, U), random(B, T, D), None)
    assert vector.shape == (B, T, E)
    expected = ops.convert_to_numpy(vector) @ ops.convert_to_numpy(embeddings).T + np.arange(V)
    np.testing.assert_allclose(readout.to_logits(vector, embeddings), expected, atol=1e-5)


def test_without_context_the_hidden_state_is_the_vector():
    hidden = random(B, T, U)
    assert make_readout(context_dim=0)(hidden, None, None) is hidden


def test_every_argument_of_a_readout_is_in_the_config():
    config = Readout(V, E, U, deep=True, dropout=0.1, variational=True).get_config()
    assert Readout.from_config(config).get_config() == config
    assert config["units"] == U
