import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from attention_apps.training import optimizer
from attention_apps.training.optimizer import AdamW, MovingAverage, WarmUpSchedule, average_arrays


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


def rates(schedule, *steps):
    return [float(schedule(step)) for step in steps]


def test_warm_up_reaches_the_peak_in_equal_steps():
    schedule = WarmUpSchedule(0.4, warmup_steps=4)
    assert rates(schedule, 0, 1, 3, 100) == pytest.approx([0.1, 0.2, 0.4, 0.4])


def test_without_warm_up_the_first_step_has_the_peak():
    assert rates(WarmUpSchedule(0.4), 0, 9) == pytest.approx([0.4, 0.4])


def test_linear_decay_ends_at_the_final_fraction():
    schedule = WarmUpSchedule(2.0, 10, "linear", total_steps=110, final_fraction=0.1)
    assert rates(schedule, 9, 60, 110, 500) == pytest.approx([2.0, 1.1, 0.2, 0.2])


def test_cosine_decay_is_half_a_cosine():
    schedule = WarmUpSchedule(2.0, 10, "cosine", total_steps=110)
    expected = [2.0, 1 + math.cos(math.pi / 4), 1.0, 0.0, 0.0]
    assert rates(schedule, 10, 35, 60, 110, 111) == pytest.approx(expected, abs=1e-6)


def test_inverse_square_root_follows_the_step():
    schedule = WarmUpSchedule(3.0, 16, "inverse_sqrt")
    assert rates(schedule, 7, 15, 63, 399) == pytest.approx([1.5, 3.0, 1.5, 0.6])


def test_config_makes_an_equal_schedule():
    schedule = WarmUpSchedule(2.0, 3, "cosine", total_steps=20, final_fraction=0.3)
    copy = keras.optimizers.schedules.deserialize(
        keras.optimizers.schedules.serialize(schedule), custom_objects={"WarmUpSchedule": WarmUpSchedule}
    )
    assert rates(copy, 0, 7, 30) == rates(schedule, 0, 7, 30)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "step"}, "`kind` must be one of constant, linear, cosine, inverse_sqrt. Received: kind='step'"),
        ({"kind": "cosine"}, "`total_steps` must be given for a cosine schedule. Received: total_steps=None"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        WarmUpSchedule(1.0, **arguments)


class Weight:
    """What a Keras variable is to the average: something with a `value`."""

    def __init__(self, value):
        self.value = tf.Variable(value)


def test_the_average_approaches_the_weights_faster_at_first():
    weight = Weight(tf.zeros(3))
    average = MovingAverage([weight], decay=0.5)
    expected = 0.0
    for step, value in enumerate([4.0, 8.0, -2.0, 6.0, 6.0, 1.0, 3.0, 9.0, 9.0], start=1):
        weight.value.assign(tf.fill((3,), value))
        average.update(tf.constant(step), moved=tf.constant(True))
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * value
        np.testing.assert_allclose(average.variables[0], [expected] * 3, rtol=1e-5)
    average.update(tf.constant(10), moved=tf.constant(False))
    np.testing.assert_allclose(average.variables[0], [expected] * 3, rtol=1e-5)


def test_the_weights_come_back_after_an_error():
    weight = Weight(tf.constant([1.0, 2.0]))
    average = MovingAverage([weight], decay=0.9)
    weight.value.assign([5.0, 6.0])
    try:
        with average.in_place():
            np.testing.assert_array_equal(weight.value, [1.0, 2.0])
            raise KeyError
    except KeyError:
        pass
    np.testing.assert_array_equal(weight.value, [5.0, 6.0])


def test_arrays_are_averaged_and_integers_are_not():
    checkpoints = [
        {"kernel": np.full((2, 3), value, "float16"), "seeds": np.array([value], "int32")} for value in (1, 2, 6)
    ]
    averaged = average_arrays(checkpoints)
    np.testing.assert_array_equal(averaged["kernel"], np.full((2, 3), 3, "float16"))
    assert averaged["kernel"].dtype == "float16"
    assert averaged["seeds"] == 1
