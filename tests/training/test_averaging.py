import numpy as np
import tensorflow as tf

from attention_apps.training.averaging import MovingAverage, average_arrays


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
