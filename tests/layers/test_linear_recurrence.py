import numpy as np
import pytest
from keras import ops

from attention_apps.layers.linear_recurrence import linear_recurrence
from tests.layers.contract import assert_close
from tests.layers.differentiate import gradients_of


def recur(decay, inputs):
    outputs = [inputs[:, 0] + 0 * decay[:, 0]]
    for position in range(1, inputs.shape[1]):
        outputs.append(decay[:, position] * outputs[-1] + inputs[:, position])
    return ops.stack(outputs, axis=1)


@pytest.mark.parametrize("length", [1, 2, 7, 16])
def test_outputs_and_gradients_are_those_of_the_loop(length):
    generator = np.random.default_rng(0)
    decay, inputs = generator.uniform(size=(2, 3, length)).astype("float32")
    decay[0, -1], decay[1, length // 2] = 0, 1
    assert_close(linear_recurrence(ops.convert_to_tensor(decay), ops.convert_to_tensor(inputs)), recur(decay, inputs))
    found = gradients_of(lambda *x: ops.sum(ops.sin(linear_recurrence(*x))), decay, inputs)
    assert_close(found, gradients_of(lambda *x: ops.sum(ops.sin(recur(*x))), decay, inputs))


def test_long_runs_of_small_decays_stay_exact():
    decay = np.full((1, 3000), 1e-6, "float32")
    decay[:, 2000:] = 1
    outputs = ops.convert_to_numpy(linear_recurrence(ops.convert_to_tensor(decay), ops.ones((1, 3000))))
    np.testing.assert_allclose(outputs[0, [0, 1, 1999, 2999]], [1, 1 + 1e-6, 1 + 1e-6, 1001], rtol=1e-5)
