import keras
import numpy as np
import pytest
import tensorflow as tf

from attention_apps.training import optimizer
from attention_apps.training.optimizer import AdamW
from attention_apps.training.schedules import WarmUpSchedule


def make_variables():
    return [
        keras.Variable(np.linspace(-1, 1, 15, dtype="float32").reshape(3, 5)),
        keras.Variable(np.ones(7, "float32")),
    ]


def gradients_of(step):
    random = np.random.default_rng(step)
    return [tf.constant(random.normal(size=shape) * step, tf.float32) for shape in ((3, 5), (7,))]


@pytest.mark.parametrize("clip_norm", [None, 2.0])
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_steps_are_those_of_keras(clip_norm, weight_decay):
    ours, theirs = make_variables(), make_variables()
    schedule = WarmUpSchedule(0.1, 3, "linear", total_steps=9)
    adam = AdamW(ours, schedule, weight_decay, clip_norm)
    reference = keras.optimizers.AdamW(schedule, weight_decay=weight_decay, global_clipnorm=clip_norm)
    reference.exclude_from_weight_decay(var_list=theirs[1:])
    for step in range(1, 6):
        figures = adam.apply([3.0 * gradient for gradient in gradients_of(step)], tf.constant(3.0))
        reference.apply(gradients_of(step), theirs)
        np.testing.assert_allclose(figures["gradient_norm"], tf.linalg.global_norm(gradients_of(step)), rtol=1e-5)
        np.testing.assert_allclose(figures["learning_rate"], schedule(step - 1), rtol=1e-6)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), atol=5e-6)


def test_sparse_gradients_are_dense_ones_and_missing_ones_leave_a_weight_alone():
    dense, sparse = make_variables(), make_variables()
    rows = tf.constant([[1.0, 2, 3, 4, 5], [1, 1, 1, 1, 1], [2, 2, 2, 2, 2]])
    slices = tf.IndexedSlices(rows, tf.constant([2, 0, 2]), tf.constant([3, 5]))
    AdamW(dense, lambda _: 0.1, 0.3).apply([tf.convert_to_tensor(slices), None], tf.constant(1.0))
    AdamW(sparse, lambda _: 0.1, 0.3).apply([slices, None], tf.constant(1.0))
    np.testing.assert_array_equal(dense[0].numpy(), sparse[0].numpy())
    np.testing.assert_array_equal(dense[1].numpy(), np.ones(7))


def test_the_loss_scale_halves_at_an_overflow_and_doubles_after_many_good_steps(monkeypatch):
    monkeypatch.setattr(optimizer, "LOSS_SCALE_GROWTH_STEPS", 3)
    variables = make_variables()
    adam = AdamW(variables, lambda _: 0.1, loss_scaling=True)
    before = [variable.numpy() for variable in variables]
    bad = [tf.fill((3, 5), float("inf")), tf.fill((7,), float("nan"))]
    assert not adam.apply(bad, tf.constant(1.0))["finite"]
    for old, new in zip(before, variables, strict=True):
        np.testing.assert_array_equal(old, new.numpy())
    assert float(adam.loss_scale) == 2.0**14
    assert int(adam.steps) == 0
    for _ in range(3):
        assert float(adam.loss_scale) == 2.0**14
        adam.apply([2.0**14 * gradient for gradient in gradients_of(1)], tf.constant(1.0))
    assert float(adam.loss_scale) == 2.0**15
    assert int(adam.steps) == 3
