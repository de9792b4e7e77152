"""Every decoder with every attention learns to copy a sequence of letters, in seconds."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from attention_apps import layers
from attention_apps.models import PointerGenerator, RecurrentDecoder, Seq2Seq, TextEncoder, TransformerDecoder
from attention_apps.training.losses import token_losses

pytestmark = pytest.mark.slow

V, UNITS, SHORTEST, LONGEST = 14, 48, 3, 8

# Each attends where its paper does: Luong et al. after the recurrent step, the others before it.
SOFT = {
    "additive": lambda: layers.AdditiveAttention(UNITS),
    "luong dot": lambda: layers.LuongAttention(score="dot"),
    "luong general": lambda: layers.LuongAttention(score="general"),
    "luong concat": lambda: layers.LuongAttention(score="concat", units=UNITS),
    "scaled dot-product": lambda: layers.ScaledDotProductAttention(),
    "multi-head": lambda: layers.MultiHeadAttention(num_heads=2, key_dim=24),
    "location-sensitive": lambda: layers.LocationSensitiveAttention(UNITS, filters=4, kernel_size=3),
    "coverage": lambda: layers.CoverageAttention(UNITS),
}
# Share of tokens that must be right where choosing a place is not smooth, or the window is narrow.
FLOORS = {
    "luong local-m": (0.9, lambda: layers.LuongAttention(score="general", window="local-m", half_width=2)),
    "luong local-p": (0.8, lambda: layers.LuongAttention(score="general", window="local-p", half_width=3)),
    "monotonic": (0.8, lambda: layers.MonotonicAttention(UNITS)),
    "hard": (0.7, lambda: layers.HardAttention(layers.AdditiveAttention(UNITS))),
    "hard gumbel": (0.8, lambda: layers.HardAttention(layers.AdditiveAttention(UNITS), estimator="gumbel")),
}


@pytest.fixture(autouse=True)
def same_weights_every_time():
    keras.utils.set_random_seed(0)


def make_batch(rng, size, shortest=SHORTEST, longest=LONGEST):
    lengths = rng.integers(shortest, longest + 1, size)
    letters = rng.integers(4, V, (size, longest)) * (np.arange(longest) < lengths[:, None])
    tokens = np.zeros((size, longest + 2), "int32")
    tokens[:, 0], tokens[:, 1:-1] = 1, letters
    tokens[np.arange(size), lengths + 1] = 2
    source = {"token_ids": letters.astype("int32"), "source_ids": letters.astype("int32")}
    return {"source": source, "tokens": tokens}


def train(decoder, steps=250, learning_rate=5e-3, longest=LONGEST):
    """A model that has copied for `steps` batches."""
    rng = np.random.default_rng(0)
    model = Seq2Seq(TextEncoder(V, 24, UNITS // 2), decoder)
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(learning_rate, steps), clipnorm=1.0)

    @tf.function(reduce_retracing=True)
    def step(batch):
        targets = batch["tokens"][:, 1:]
        with tf.GradientTape() as tape:
            inputs = {"source": batch["source"], "tokens": batch["tokens"][:, :-1]}
            outputs = model(inputs, return_dict=True, training=True)
            losses = token_losses(outputs, targets)
            loss = tf.reduce_mean(losses)
            if hasattr(decoder.attention, "estimator_loss"):
                log_likelihood = -tf.reduce_sum(losses, axis=-1)
                loss += 0.1 * tf.reduce_mean(
                    decoder.attention.estimator_loss(log_likelihood, outputs["attention_state"])
                )
        gradients = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
        optimizer.apply(gradients, model.trainable_variables)

    first = make_batch(rng, 64, longest=longest)
    model({"source": first["source"], "tokens": first["tokens"][:, :-1]})
    optimizer.build(model.trainable_variables)
    for _ in range(steps):
        step(keras.tree.map_structure(tf.constant, make_batch(rng, 64, longest=longest)))
    return model


@functools.cache
def train_additive():
    """The model with additive attention, which two tests look at."""
    keras.utils.set_random_seed(0)
    return train(RecurrentDecoder(V, 24, UNITS, attention=SOFT["additive"](), attend="before"))


def share_right(model, shortest=SHORTEST, longest=LONGEST):
    """Share of the tokens of unseen sequences that the model writes right by itself, greedily."""
    batch = make_batch(np.random.default_rng(99), 200, shortest, longest)
    memory = model.encode(batch["source"])
    state, token, right, total = model.decoder.init_state(memory), tf.ones((200,), tf.int32), 0, 0
    step = tf.function(model.decoder.step)
    for position in range(1, longest + 2):
        logits, state = step(token, state)
        token = tf.argmax(logits, -1, output_type=tf.int32)
        real = batch["tokens"][:, position] != 0
        right += ((token.numpy() == batch["tokens"][:, position]) & real).sum()
        total += real.sum()
    return right / total


@pytest.mark.parametrize("attention", SOFT)
def test_soft_attention_copies_without_a_fault(attention):
    if attention == "additive":
        assert share_right(train_additive()) == 1.0
        return
    attend = "after" if attention.startswith("luong") else "before"
    decoder = RecurrentDecoder(V, 24, UNITS, attention=SOFT[attention](), attend=attend)
    # A bare dot product has no weights that turn states into places: the recurrent layers have to learn that, and the
    # scaled one can only be sharp where they saturate.
    special = {"luong dot": (600, 1e-2, 8), "luong general": (400, 5e-3, 8), "scaled dot-product": (800, 1e-2, 5)}
    steps, learning_rate, longest = special.get(attention, (250, 5e-3, LONGEST))
    assert share_right(train(decoder, steps, learning_rate, longest), longest=longest) == 1.0


@pytest.mark.parametrize("attention", FLOORS)
def test_hard_monotonic_and_local_attention_copy_above_their_floor(attention):
    floor, make = FLOORS[attention]
    assert share_right(train(RecurrentDecoder(V, 24, UNITS, attention=make()), steps=400)) >= floor


def test_a_transformer_decoder_copies_without_a_fault():
    decoder = TransformerDecoder(V, UNITS, num_layers=1, num_heads=4, hidden_dim=96)
    assert share_right(train(decoder, steps=700, learning_rate=3e-3)) == 1.0


@pytest.mark.parametrize("kind", ["recurrent", "transformer"])
def test_a_pointer_generator_copies_without_a_fault(kind):
    if kind == "recurrent":
        decoder = RecurrentDecoder(V, 24, UNITS, attention=layers.AdditiveAttention(UNITS), attend="after")
    else:
        decoder = TransformerDecoder(V, UNITS, num_layers=1, num_heads=4, hidden_dim=96)
    assert share_right(train(PointerGenerator(decoder), steps=300, learning_rate=4e-3)) == 1.0


def test_without_attention_longer_inputs_are_worse():
    plain = train(RecurrentDecoder(V, 24, UNITS, attention=None, initial_state="last"))
    attentive = train_additive()
    short, long = share_right(plain, 3, 3), share_right(plain, 8, 8)
    assert long < short - 0.1
    assert long < share_right(attentive, 8, 8) - 0.1
