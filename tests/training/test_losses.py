import keras
import numpy as np
import pytest
import tensorflow as tf

from attention_apps.decoding.ctc import ctc_losses
from attention_apps.layers import LocationSensitiveAttention
from attention_apps.models.encoders import Listener
from attention_apps.models.recurrent_decoder import RecurrentDecoder
from attention_apps.models.seq2seq import Seq2Seq
from attention_apps.training.config import TrainingConfig
from attention_apps.training.losses import (
    CTCLoss,
    PointingLoss,
    consistency_loss,
    doubly_stochastic_loss,
    guided_attention_loss,
    target_token_count,
    token_losses,
)
from attention_apps.training.objectives import TeacherForcing

B, N, T, S, V = 2, 3, 4, 5, 7


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def make_targets(*shape, largest=V):
    targets = np.random.default_rng(1).integers(1, largest, shape)
    targets[0, ..., -1] = 0
    return targets


def numpy_smoothed_loss(logits, targets, smoothing):
    log_probabilities = log_softmax(logits)
    smoothed = np.full(logits.shape, smoothing / V) + (1 - smoothing) * np.eye(V)[targets]
    return np.where(targets != 0, -(smoothed * log_probabilities).sum(-1), 0)


@pytest.mark.parametrize("shape", [(B, T), (B, N, T)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_that_of_the_smoothed_one_hot(shape, smoothing):
    logits, targets = draw(*shape, V), make_targets(*shape)
    losses = token_losses({"logits": tf.constant(logits)}, tf.constant(targets), smoothing)
    np.testing.assert_allclose(losses, numpy_smoothed_loss(logits, targets, smoothing), atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_is_the_smoothed_difference(smoothing):
    logits, targets, upstream = tf.constant(draw(B, T, V)), make_targets(B, T), draw(B, T, seed=2)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tf.reduce_sum(token_losses({"logits": logits}, tf.constant(targets), smoothing) * upstream)
    smoothed = smoothing / V + (1 - smoothing) * np.eye(V)[targets]
    expected = (np.exp(log_softmax(logits.numpy())) - smoothed) * (upstream * (targets != 0))[..., None]
    np.testing.assert_allclose(tape.gradient(loss, logits), expected, atol=1e-6)


def test_half_precision_logits_are_normalised_in_float32():
    logits, targets = draw(B, T, V).astype("float16"), make_targets(B, T)
    losses = token_losses({"logits": tf.constant(logits)}, tf.constant(targets), 0.1)
    assert losses.dtype == tf.float32
    np.testing.assert_allclose(losses, numpy_smoothed_loss(logits.astype("float32"), targets, 0.1), atol=1e-6)


def copying_outputs(shape):
    attention = np.exp(log_softmax(draw(*shape, S, seed=3)))
    source_ids = np.array([[4, 5, V + 2, 4, V + 4], [6, V + 1, 3, 6, 5]])
    return {"logits": draw(*shape, V), "switch": draw(*shape, seed=4), "attention": attention, "source_ids": source_ids}


def numpy_mixture(outputs, shape):
    """The whole distribution over V + S, step by step."""
    generate = 1 / (1 + np.exp(-outputs["switch"]))
    mixture = np.zeros((*shape, V + S))
    mixture[..., :V] = np.exp(log_softmax(outputs["logits"])) * generate[..., None]
    for place in np.ndindex(*shape):
        for s, word in enumerate(outputs["source_ids"][place[0]]):
            mixture[(*place, word)] += (1 - generate[place]) * outputs["attention"][(*place, s)]
    return mixture


@pytest.mark.parametrize("shape", [(B, T), (B, N, T)])
def test_copied_targets_have_the_probability_of_the_mixture(shape):
    outputs, targets = copying_outputs(shape), make_targets(*shape)
    targets[0, ..., 0], targets[0, ..., 1], targets[1, ..., 2] = V + 2, 4, V + 1
    losses = token_losses({k: tf.constant(v) for k, v in outputs.items()}, tf.constant(targets))
    picked = np.take_along_axis(numpy_mixture(outputs, shape), targets[..., None], -1)[..., 0]
    np.testing.assert_allclose(losses, np.where(targets != 0, -np.log(picked), 0), atol=1e-5)


def test_smoothing_with_copying_is_spread_over_the_generated_words():
    outputs, targets = copying_outputs((B, T)), make_targets(B, T)
    losses = token_losses({k: tf.constant(v) for k, v in outputs.items()}, tf.constant(targets), 0.2)
    picked = np.take_along_axis(numpy_mixture(outputs, (B, T)), targets[..., None], -1)[..., 0]
    generated = log_softmax(outputs["logits"]).mean(-1) - np.log1p(np.exp(-outputs["switch"]))
    expected = np.where(targets != 0, -0.8 * np.log(picked) - 0.2 * generated, 0)
    np.testing.assert_allclose(losses, expected, atol=1e-5)


def test_a_word_that_is_nowhere_has_a_finite_loss_and_gradient():
    outputs = {k: tf.constant(v) for k, v in copying_outputs((B, T)).items()}
    outputs["logits"] = tf.constant(np.full((B, T, V), 0.0, "float32"))
    with tf.GradientTape() as tape:
        tape.watch([outputs["logits"], outputs["switch"], outputs["attention"]])
        loss = tf.reduce_sum(token_losses(outputs, tf.fill((B, T), V + 3)))
    gradients = tape.gradient(loss, [outputs["logits"], outputs["switch"], outputs["attention"]])
    assert np.isfinite(loss)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("shape", [(B, T), (B, N, T)])
def test_doubly_stochastic_loss_is_equation_14(shape):
    attention, targets = np.exp(log_softmax(draw(*shape, S))), make_targets(*shape)
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], bool)
    total = 0.0
    for row in np.ndindex(*shape[:-1]):
        for s in np.flatnonzero(mask[row[0]]):
            total += (1 - sum(attention[(*row, t, s)] for t in range(T) if targets[(*row, t)])) ** 2
    loss = doubly_stochastic_loss(tf.constant(attention), tf.constant(targets), tf.constant(mask))
    np.testing.assert_allclose(loss, total, rtol=1e-5)


@pytest.mark.parametrize("shape", [(B, T), (B, N, T)])
@pytest.mark.parametrize("masked", [True, False])
def test_guided_loss_punishes_what_is_off_the_diagonal(shape, masked):
    attention, targets = np.exp(log_softmax(draw(*shape, S))), make_targets(*shape)
    lengths = [4, S] if masked else [S, S]
    total = 0.0
    for *row, t, s in np.ndindex(*shape, S):
        if targets[(*row, t)]:
            distance = t / (targets[tuple(row)] != 0).sum() - s / lengths[row[0]]
            total += attention[(*row, t, s)] * (1 - np.exp(-(distance**2) / (2 * 0.2**2)))
    mask = tf.sequence_mask(lengths, S) if masked else None
    loss = guided_attention_loss(tf.constant(attention), tf.constant(targets), mask)
    np.testing.assert_allclose(loss, total, rtol=1e-5)


@pytest.mark.parametrize("shape", [(B, T), (B, N, T)])
def test_two_passes_are_compared_by_both_divergences(shape):
    logits, targets = draw(2 * shape[0], *shape[1:], V), np.concatenate(2 * [make_targets(*shape)])
    first, second = np.split(np.exp(log_softmax(logits)), 2)
    there, back = (p * np.log(p / q) for p, q in ((first, second), (second, first)))
    expected = 0.5 * (there + back)[targets[: shape[0]] != 0].sum()
    np.testing.assert_allclose(consistency_loss(tf.constant(logits), tf.constant(targets)), expected, rtol=1e-5)


def test_padding_is_not_counted():
    assert target_token_count(tf.constant([[4, 2, 0], [5, 6, 2]])) == 5


WORDS, MELS, FRAMES = 9, 8, 24


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    attention = LocationSensitiveAttention(6, filters=2, kernel_size=5)
    return Seq2Seq(Listener(WORDS, 5, num_layers=1, filters=2), RecurrentDecoder(WORDS, 4, 7, attention=attention))


@pytest.fixture(scope="module")
def batch():
    generator = np.random.default_rng(0)
    mask = np.arange(FRAMES) < np.array([[FRAMES], [4]])
    features = generator.normal(size=(2, FRAMES, MELS)).astype("float32") * mask[..., None]
    tokens = np.array([[1, 4, 4, 5, 2], [1, 6, 7, 2, 0]])  # the second has one frame for two letters
    return {"source": {"features": tf.constant(features), "mask": tf.constant(mask)}, "tokens": tf.constant(tokens)}


def losses_of(model, batch, extra_loss, epoch=0):
    objective = TeacherForcing(model, TrainingConfig(), extra_loss)
    return objective.losses(batch, tf.constant([epoch, 0]), tf.constant(0))


def test_the_two_losses_share_the_weight(model, batch):
    plain, counts, _ = losses_of(model, batch, None)
    assert not counts
    outputs = model({"source": batch["source"], "tokens": batch["tokens"][:, :-1]}, return_dict=True, training=True)
    of_texts, fits = ctc_losses(outputs["memory"]["ctc_logits"], outputs["memory"]["mask"], batch["tokens"])
    assert fits.numpy().tolist() == [True, False]
    joint, counts, _ = losses_of(model, batch, CTCLoss(0.3))
    assert set(joint) == {"ctc", "cross_entropy"}
    np.testing.assert_allclose(joint["ctc"], 0.3 * of_texts[0], rtol=1e-4)
    np.testing.assert_allclose(joint["cross_entropy"], 0.7 * plain["cross_entropy"], rtol=1e-4)
    assert {name: int(count) for name, count in counts.items()} == {"ctc_skipped": 1}


def test_ctc_is_alone_at_first(model, batch):
    loss = CTCLoss(0.5, ctc_only_epochs=2)
    first, third = (losses_of(model, batch, loss, epoch)[0] for epoch in (1, 2))
    assert first["cross_entropy"] == 0
    np.testing.assert_allclose(first["ctc"], 2 * third["ctc"], rtol=1e-4)
    assert third["cross_entropy"] > 0


def test_wrong_arguments_are_explained():
    with pytest.raises(ValueError, match=r"`weight` must be between 0 and 1. Received: weight=1.5"):
        CTCLoss(1.5)
    with pytest.raises(ValueError, match=r"`ctc_only_epochs` must be at least 0. Received: ctc_only_epochs=-1"):
        CTCLoss(ctc_only_epochs=-1)


def pointing(attention, regions, weight=1.0):
    """The loss of regions without a start token, which the batch has."""
    regions = tf.concat([tf.zeros_like(regions[:, :1]), regions], axis=1)
    losses, counts = PointingLoss(weight)(None, {"regions": regions}, {"attention": attention}, {}, tf.constant(0))
    assert counts["pointed"] == tf.math.count_nonzero(tf.reduce_any(regions, axis=-1))
    return losses["pointing"]


def test_pointing_loss_is_that_of_the_attention_inside_the_regions():
    attention = tf.constant([[[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]]])
    regions = tf.constant([[[True, True, False], [False, False, False], [False, False, True]]])
    expected = -np.log(0.75) - np.log(0.5)
    np.testing.assert_allclose(pointing(attention, regions), expected, rtol=1e-6)
    np.testing.assert_allclose(pointing(attention, regions, weight=0.5), expected / 2, rtol=1e-6)


def test_pointing_loss_outside_of_all_regions_is_finite_and_has_a_gradient_of_zero():
    attention = tf.Variable([[[0.0, 1.0]]])
    with tf.GradientTape() as tape:
        loss = pointing(attention, tf.constant([[[True, False]]]))
    assert np.isfinite(loss)
    assert np.isfinite(tape.gradient(loss, attention)).all()
