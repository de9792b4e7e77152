import keras
import numpy as np
import pytest
import tensorflow as tf

from attention_apps.layers import LocationSensitiveAttention
from attention_apps.models.ctc import ctc_losses
from attention_apps.models.listener import Listener
from attention_apps.models.recurrent_decoder import RecurrentDecoder
from attention_apps.models.seq2seq import Seq2Seq
from attention_apps.training.config import TrainingConfig
from attention_apps.training.ctc_companion import CTCCompanion
from attention_apps.training.teacher_forcing import TeacherForcing

V, M, T = 9, 8, 24


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    attention = LocationSensitiveAttention(6, filters=2, kernel_size=5)
    return Seq2Seq(Listener(V, 5, num_layers=1, filters=2), RecurrentDecoder(V, 4, 7, attention=attention))


@pytest.fixture(scope="module")
def batch():
    generator = np.random.default_rng(0)
    mask = np.arange(T) < np.array([[T], [4]])
    features = generator.normal(size=(2, T, M)).astype("float32") * mask[..., None]
    tokens = np.array([[1, 4, 4, 5, 2], [1, 6, 7, 2, 0]])  # the second has one frame for two letters
    return {"source": {"features": tf.constant(features), "mask": tf.constant(mask)}, "tokens": tf.constant(tokens)}


def losses_of(model, batch, extra_loss, epoch=0):
    objective = TeacherForcing(model, TrainingConfig(), extra_loss)
    return objective.losses(batch, tf.constant([epoch, 0]), tf.constant(0))


def test_the_two_losses_share_the_weight(model, batch):
    plain, counts, _ = losses_of(model, batch, None)
    assert not counts
    outputs = model({"source": batch["source"], "tokens": batch["tokens"][:, :-1]}, in_full=True, training=True)
    of_texts, fits = ctc_losses(outputs["memory"]["ctc_logits"], outputs["memory"]["mask"], batch["tokens"])
    assert fits.numpy().tolist() == [True, False]
    joint, counts, _ = losses_of(model, batch, CTCCompanion(0.3))
    assert set(joint) == {"ctc", "cross_entropy"}
    np.testing.assert_allclose(joint["ctc"], 0.3 * of_texts[0], rtol=1e-4)
    np.testing.assert_allclose(joint["cross_entropy"], 0.7 * plain["cross_entropy"], rtol=1e-4)
    assert {name: int(count) for name, count in counts.items()} == {"ctc_skipped": 1}


def test_ctc_is_alone_at_first(model, batch):
    companion = CTCCompanion(0.5, alone_epochs=2)
    first, third = (losses_of(model, batch, companion, epoch)[0] for epoch in (1, 2))
    assert first["cross_entropy"] == 0
    np.testing.assert_allclose(first["ctc"], 2 * third["ctc"], rtol=1e-4)
    assert third["cross_entropy"] > 0


def test_wrong_arguments_are_explained():
    with pytest.raises(ValueError, match=r"`weight` must be between 0 and 1. Received: weight=1.5"):
        CTCCompanion(1.5)
    with pytest.raises(ValueError, match=r"`alone_epochs` must be at least 0. Received: alone_epochs=-1"):
        CTCCompanion(alone_epochs=-1)
