import numpy as np
import pytest
from keras import ops

from attention_apps.layers.monotonic_attention import MonotonicAttention, linear_recurrence
from tests.layers.contract import ATTENTION_CHECKS, assert_close, assert_finite, call, example, gradients
from tests.layers.differentiate import gradients_of
from tests.layers.reference import dense

UNITS = 11


@pytest.mark.parametrize("check", ATTENTION_CHECKS)
def test_it_keeps_the_contract(check):
    check(lambda: MonotonicAttention(UNITS, offset=0.0, seed=3), query_dim=4)


def noiseless(scale, offset, **sizes):
    """A layer without noise, its inputs, and its energies after eq. 16 of the paper."""
    layer, (query, value, mask) = MonotonicAttention(UNITS, noise=0.0), example(query_dim=4, **sizes)
    call(layer, query, value, mask)
    layer.score_scale.assign(scale)
    layer.score_offset.assign(offset)
    layer.key_dense.bias.assign(np.linspace(-1, 1, UNITS))
    kernel = ops.convert_to_numpy(layer.score_kernel)
    projected = dense(layer.query_dense, query)[:, :, None] + dense(layer.key_dense, value)[:, None]
    return layer, (query, value, mask), scale * np.tanh(projected) @ (kernel / np.linalg.norm(kernel)) + offset


def expected_alignment(probabilities, previous):
    """Eq. 9 as it stands: a sum over where the previous target position was, of products of going on from there."""
    alignment = np.zeros_like(previous)
    for end in range(len(previous)):
        reached = sum(previous[start] * np.prod(1 - probabilities[start:end]) for start in range(end + 1))
        alignment[end] = probabilities[end] * reached
    return alignment


def hard_alignment(stops, position):
    """Algorithm 1: the first stop from the position on, and the position after it; it stays where there is none."""
    alignment = np.zeros(len(stops))
    for candidate in range(position, len(stops)):
        if stops[candidate]:
            alignment[candidate] = 1
            return alignment, candidate
    return alignment, position


@pytest.mark.parametrize(("scale", "offset"), [(1.0, -1.0), (4.0, 0.0), (300.0, 0.0)])
def test_training_takes_the_expected_alignment(scale, offset):
    layer, (query, value, mask), energies = noiseless(scale, offset)
    context, weights, state = call(layer, query, value, mask, training=True)
    probabilities = np.where(mask[:, None], (1 + np.tanh(energies / 2)) / 2, 0)
    expected = np.zeros_like(probabilities)
    for row in range(len(query)):
        previous = np.eye(value.shape[1])[0]
        for position in range(query.shape[1]):
            previous = expected[row, position] = expected_alignment(probabilities[row, position], previous)
    assert_close((context, weights, state["weights"]), (expected @ value, expected, expected[:, -1]), tolerance=1e-3)
    assert_finite(gradients(layer, query, value, mask))


def test_inference_takes_the_first_stop_from_the_last_position_on():
    layer, (query, value, mask), energies = noiseless(3.0, -0.5, batch=6, target=4, source=9)
    context, weights, state = call(layer, query, value, mask)
    expected, last = np.zeros_like(energies), np.zeros((6, 9))
    for row in range(6):
        place = 0
        for position in range(4):
            expected[row, position], place = hard_alignment((energies[row, position] > 0) & mask[row], place)
        last[row, place] = 1
    assert_close((context, weights, state["weights"]), (expected @ value, expected, last))
    assert 0 < expected.sum() < 6 * 4  # some target positions found a stop, some did not


def test_training_step_by_step_is_like_all_at_once():
    layer, (query, value, mask), _ = noiseless(2.0, -0.5)
    expected = call(layer, query, value, mask, training=True)
    state, steps = None, []
    for position in range(query.shape[1]):
        one = query[:, position : position + 1]
        _, weights, state = call(layer, one, value, mask, training=True, state=state)
        steps.append(weights)
    assert_close((ops.concatenate(steps, axis=1), state), expected[1:])


def test_weights_never_go_back():
    layer, (query, value, mask), _ = noiseless(5.0, 0.0, target=6, source=8)
    soft, hard = (ops.convert_to_numpy(call(layer, query, value, mask, training=x)[1]) for x in (True, False))
    passed = np.cumsum(soft, axis=-1)
    assert np.all(passed[:, 1:] <= passed[:, :-1] + 1e-6)
    for row in hard:
        positions = row.argmax(-1)[row.any(-1)]
        assert np.all(np.diff(positions) >= 0)


def test_noise_is_there_in_training_only():
    layer, inputs = MonotonicAttention(UNITS, seed=1), example(query_dim=4)
    first, second = (ops.convert_to_numpy(call(layer, *inputs, training=True)[1]) for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    assert_close(call(layer, *inputs)[1], call(layer, *inputs)[1])


def test_a_seed_repeats_the_noise():
    inputs, results = example(query_dim=4), []
    for _ in range(2):
        layer = MonotonicAttention(UNITS, seed=7)
        layer.build(inputs[0].shape, inputs[1].shape)
        weights = [0.1 * np.cos(np.arange(w.size)).reshape(w.shape) for w in layer.get_weights()]
        layer.set_weights(weights)
        layer.seed_generator.state.assign(np.array([7, 0]))
        results.append(call(layer, *inputs, training=True)[1])
    assert_close(*results)


def test_units_must_be_positive():
    with pytest.raises(ValueError, match="`units` must be a positive integer. Received: units=0"):
        MonotonicAttention(0)


def test_noise_must_not_be_negative():
    with pytest.raises(ValueError, match="`noise` must not be negative. Received: noise=-1"):
        MonotonicAttention(UNITS, noise=-1)


def recur(decay, inputs):
    outputs = [inputs[:, 0] + 0 * decay[:, 0]]
    for position in range(1, inputs.shape[1]):
        outputs.append(decay[:, position] * outputs[-1] + inputs[:, position])
    return ops.stack(outputs, axis=1)


@pytest.mark.parametrize("length", [1, 2, 7, 16])
def test_linear_recurrence_has_the_outputs_and_gradients_of_the_loop(length):
    generator = np.random.default_rng(0)
    decay, inputs = generator.uniform(size=(2, 3, length)).astype("float32")
    decay[0, -1], decay[1, length // 2] = 0, 1
    assert_close(linear_recurrence(ops.convert_to_tensor(decay), ops.convert_to_tensor(inputs)), recur(decay, inputs))
    found = gradients_of(lambda *x: ops.sum(ops.sin(linear_recurrence(*x))), decay, inputs)
    assert_close(found, gradients_of(lambda *x: ops.sum(ops.sin(recur(*x))), decay, inputs))


def test_linear_recurrence_with_long_runs_of_small_decays_stays_exact():
    decay = np.full((1, 3000), 1e-6, "float32")
    decay[:, 2000:] = 1
    outputs = ops.convert_to_numpy(linear_recurrence(ops.convert_to_tensor(decay), ops.ones((1, 3000))))
    np.testing.assert_allclose(outputs[0, [0, 1, 1999, 2999]], [1, 1 + 1e-6, 1 + 1e-6, 1001], rtol=1e-5)
