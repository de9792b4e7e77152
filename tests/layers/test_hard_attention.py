import re

import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.layers.additive_attention import AdditiveAttention
from attention_apps.layers.coverage_attention import CoverageAttention
from attention_apps.layers.dot_product_attention import MultiHeadAttention
from attention_apps.layers.hard_attention import HardAttention, MonotonicAttention, linear_recurrence
from attention_apps.layers.luong_attention import LuongAttention
from attention_apps.layers.sequence_ops import scan_time
from tests.layers.contract import (
    ATTENTION_CHECKS,
    VALUE_DIM,
    assert_close,
    assert_finite,
    call,
    check_compiled,
    check_config,
    check_dynamic_shapes,
    check_fit,
    check_keras_round_trip,
    check_shapes,
    check_stepwise,
    example,
    gradients,
)
from tests.layers.differentiate import gradients_of
from tests.layers.reference import dense

UNITS = 11
ESTIMATORS = ("reinforce", "gumbel", "straight_through")
SAMPLING = ESTIMATORS[:2]


@pytest.fixture(autouse=True)
def _fixed_weights():
    keras.utils.set_random_seed(1)


@pytest.mark.parametrize("check", ATTENTION_CHECKS)
def test_it_keeps_the_contract(check):
    check(lambda: HardAttention(AdditiveAttention(UNITS)), query_dim=4)


@pytest.mark.parametrize(
    "check", [check_shapes, check_config, check_keras_round_trip, check_dynamic_shapes, check_fit, check_compiled]
)
def test_it_keeps_the_contract_around_a_layer_with_a_state(check):
    options = {"expectation_rate": 0.3, "reward_weight": 2.0, "entropy_weight": 0.1, "baseline_momentum": 0.8}
    check(lambda: HardAttention(CoverageAttention(UNITS), "gumbel", temperature=0.7, seed=5, **options), query_dim=4)


@pytest.mark.parametrize(
    "make_inner",
    [
        lambda: CoverageAttention(UNITS),
        lambda: LuongAttention("general", window="local-p"),
        lambda: MonotonicAttention(UNITS, offset=0.0),
        lambda: MultiHeadAttention(2, 3),
    ],
)
def test_it_wraps_any_attention_layer(make_inner):
    check_stepwise(lambda: HardAttention(make_inner()))
    layer, inputs = HardAttention(make_inner()), example()
    _, weights, state = call(layer, *inputs, training=True)
    assert_finite((weights, state))


def soft_weights(layer, inputs):
    return ops.convert_to_numpy(call(layer.attention, *inputs)[1])


def test_inference_takes_the_most_likely_position():
    layer, inputs = HardAttention(AdditiveAttention(UNITS)), example()
    context, weights, state = call(layer, *inputs)
    expected = np.eye(5)[soft_weights(layer, inputs).argmax(-1)]
    assert_close((weights, context), (expected, expected @ inputs[1]))
    assert_close((state["log_prob"], state["entropy"]), (np.zeros(2), np.zeros(2)))


@pytest.mark.parametrize("estimator", SAMPLING)
def test_training_samples_from_the_weights_of_the_wrapped_layer(estimator):
    layer = HardAttention(AdditiveAttention(UNITS), estimator, expectation_rate=0.0, seed=2)
    inputs = [np.repeat(x[1:2], 4000, axis=0) for x in example()]
    sampled = ops.convert_to_numpy(call(layer, *inputs, training=True)[1])
    assert np.all(np.sort(sampled, axis=-1) == [0, 0, 0, 0, 1])
    np.testing.assert_allclose(sampled.mean(0), soft_weights(layer, inputs)[0], atol=0.035)
    assert not np.any(sampled[..., 4])  # padding


def test_the_state_collects_log_probability_and_entropy():
    layer, inputs = HardAttention(AdditiveAttention(UNITS), expectation_rate=0.5, seed=3), example(batch=4)
    _, weights, state = call(layer, *inputs, training=True)
    soft, used = soft_weights(layer, inputs), ops.convert_to_numpy(weights)
    sampled = used.max(-1) == 1
    logarithm = np.log(np.where(soft > 0, soft, 1))
    assert_close(used[~sampled], soft[~sampled])
    assert_close(state["log_prob"], ((used * logarithm).sum(-1) * sampled).sum(-1))
    assert_close(state["entropy"], -(soft * logarithm).sum((1, 2)))
    _, _, again = call(layer, *inputs, training=True, state=state)
    assert_close(again["entropy"], 2 * ops.convert_to_numpy(state["entropy"]))


@pytest.mark.parametrize(("rate", "share"), [(0.0, 0.0), (0.3, 0.3), (1.0, 1.0)])
def test_some_positions_take_the_expectation(rate, share):
    layer, inputs = HardAttention(AdditiveAttention(UNITS), expectation_rate=rate, seed=4), example(batch=1000)
    inputs[2][:] = True
    _, weights, state = call(layer, *inputs, training=True)
    soft = ops.convert_to_numpy(weights).max(-1) < 1
    assert abs(soft.mean() - share) < 0.05
    if rate == 1.0:
        assert not np.any(ops.convert_to_numpy(state["log_prob"]))


def test_the_reinforce_gradient_is_that_of_the_expectation():
    """Two target positions, three sources, a reward for each pair of positions; every row is a sample of its own."""
    rows, target, source = 20_000, 2, 3
    generator = np.random.default_rng(0)
    table = ops.convert_to_tensor(generator.normal(size=(source, source)).astype("float32"))
    query, value = (generator.normal(size=(1, n, 4)).astype("float32") for n in (target, source))
    layer = HardAttention(AdditiveAttention(UNITS), expectation_rate=0.0, entropy_weight=0.0, reward_weight=1.5, seed=6)
    call(layer, query, value)
    layer.baseline.assign(0.4)

    def reward_of(weights):
        return ops.einsum("bi,ij,bj->b", weights[:, 0], table, weights[:, 1])

    def exact(query):
        return -1.5 * ops.sum(reward_of(call(layer.attention, query, value)[1]))

    def estimated(queries):
        _, weights, state = call(layer, queries, np.repeat(value, rows, axis=0), training=True)
        return ops.sum(layer.estimator_loss(reward_of(weights), state, training=False))

    (expected,) = gradients_of(exact, query)
    (samples,) = gradients_of(estimated, np.repeat(query, rows, axis=0))
    error = samples.std(0) / np.sqrt(rows)
    assert np.all(np.abs(samples.mean(0) - expected[0]) < 4.5 * error)
    assert np.abs(expected).max() > 10 * error.max()  # the test could see a wrong gradient


def test_the_estimator_loss_and_its_baseline():
    layer = HardAttention(
        AdditiveAttention(UNITS), reward_weight=2.0, entropy_weight=0.5, baseline_momentum=0.8, seed=1
    )
    call(layer, *example())
    layer.baseline.assign(-3.0)
    log_likelihood = np.array([-1.0, -6.0])
    state = {"inner": {}, "log_prob": np.array([-0.5, -2.0]), "entropy": np.array([0.1, 0.7])}
    loss = layer.estimator_loss(ops.convert_to_tensor(log_likelihood, "float32"), _tensors(state))
    expected = -(2 * (log_likelihood + 3) * state["log_prob"] + 0.5 * state["entropy"])
    assert_close(loss, expected)
    assert_close(layer.baseline.value, 0.8 * -3 + 0.2 * -3.5)
    layer.estimator_loss(ops.convert_to_tensor(log_likelihood, "float32"), _tensors(state), training=False)
    assert_close(layer.baseline.value, 0.8 * -3 + 0.2 * -3.5)
    assert [variable.name for variable in layer.non_trainable_variables if variable.name == "baseline"]


def test_rows_that_are_masked_do_not_move_the_baseline():
    layer = HardAttention(AdditiveAttention(UNITS), baseline_momentum=0.8)
    call(layer, *example())
    layer.baseline.assign(-3.0)
    state = _tensors({"inner": {}, "log_prob": np.zeros(3), "entropy": np.zeros(3)})
    log_likelihood = ops.convert_to_tensor([-1.0, 0.0, -6.0], "float32")
    layer.estimator_loss(log_likelihood, state, row_mask=np.array([True, False, True]))
    assert_close(layer.baseline.value, 0.8 * -3 + 0.2 * -3.5)
    layer.estimator_loss(log_likelihood, state, row_mask=np.zeros(3, bool))
    assert_close(layer.baseline.value, 0.8 * -3 + 0.2 * -3.5)


def _tensors(state):
    return {name: x if name == "inner" else ops.convert_to_tensor(x, "float32") for name, x in state.items()}


def test_no_gradient_goes_into_the_log_likelihood():
    layer = HardAttention(AdditiveAttention(UNITS))
    call(layer, *example())
    state = _tensors({"inner": {}, "log_prob": np.array([-0.5, -2.0]), "entropy": np.zeros(2)})
    (gradient,) = gradients_of(
        lambda x: ops.sum(x + layer.estimator_loss(x, state, training=False)), np.ones(2, "float32")
    )
    assert_close(gradient, np.ones(2))


def test_gumbel_has_a_gradient_and_nothing_to_add_to_the_loss():
    layer, (query, value, mask) = HardAttention(AdditiveAttention(UNITS), "gumbel", seed=1), example()
    _, _, state = call(layer, query, value, mask, training=True)
    assert state == {}
    assert_close(layer.estimator_loss(ops.ones((2,)), state), np.zeros(2))
    (gradient,) = gradients_of(lambda x: ops.sum(call(layer, x, value, mask, training=True)[0]), query)
    assert np.abs(gradient).max() > 1e-4


def test_the_gumbel_gradient_is_that_of_the_noisy_softmax(monkeypatch):
    layer, (query, value, mask) = HardAttention(AdditiveAttention(UNITS), "gumbel", temperature=0.6), example()
    noise = np.random.default_rng(0).gumbel(size=(2, 3, 5)).astype("float32")
    uniform = ops.convert_to_tensor(np.exp(-np.exp(-noise)))  # from which the layer computes that noise
    call(layer, query, value, mask)
    monkeypatch.setattr(keras.random, "uniform", lambda *args, **kwargs: uniform)

    def soft_context(query):
        weights = call(layer.attention, query, value, mask)[1]
        logits = ops.where(mask[:, None], ops.log(ops.where(mask[:, None], weights, 1.0)) + noise, -1e9)
        return ops.sum(ops.sin(ops.arange(VALUE_DIM, dtype="float32")) * ops.matmul(ops.softmax(logits / 0.6), value))

    def hard_context(query):
        context = call(layer, query, value, mask, training=True)[0]
        return ops.sum(ops.sin(ops.arange(VALUE_DIM, dtype="float32")) * context)

    assert_close(gradients_of(hard_context, query), gradients_of(soft_context, query))


def test_straight_through_sees_in_training_what_inference_does_and_has_the_gradient_of_the_soft_weights():
    layer, (query, value, mask) = HardAttention(AdditiveAttention(UNITS), "straight_through"), example()
    context, weights, state = call(layer, query, value, mask, training=True)
    assert_close([context, weights], call(layer, query, value, mask)[:2])
    assert_close(layer.estimator_loss(ops.ones((2,)), state), np.zeros(2))
    direction = ops.sin(ops.arange(VALUE_DIM, dtype="float32"))
    hard = gradients_of(lambda x: ops.sum(direction * call(layer, x, value, mask, training=True)[0]), query)
    soft = gradients_of(lambda x: ops.sum(direction * call(layer.attention, x, value, mask)[0]), query)
    assert_close(hard, soft)


def test_the_wrapped_state_follows_the_soft_weights():
    layer, inputs = HardAttention(CoverageAttention(UNITS), expectation_rate=0.0), example()
    _, _, state = call(layer, *inputs, training=True)
    assert_close(state["inner"], call(layer.attention, *inputs)[2])


def test_a_fully_masked_row_adds_nothing_to_the_state():
    layer, (query, value, mask) = HardAttention(AdditiveAttention(UNITS), expectation_rate=0.0), example()
    mask[0] = False
    _, weights, state = call(layer, query, value, mask, training=True)
    assert not np.any(ops.convert_to_numpy(weights)[0])
    assert float(state["log_prob"][0]) == float(state["entropy"][0]) == 0
    assert float(state["entropy"][1]) > 0


def test_a_soft_layer_that_is_trained_becomes_hard_with_its_weights():
    soft, inputs = AdditiveAttention(UNITS), example()
    weights = call(soft, *inputs)[1]
    hard = call(HardAttention(soft), *inputs)[1]
    assert_close(hard, np.eye(5)[ops.convert_to_numpy(weights).argmax(-1)])


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a TensorFlow graph")
@pytest.mark.parametrize("jit_compile", [False, True])
def test_it_samples_anew_at_each_step_of_a_decoder_in_a_graph(jit_compile):
    import tensorflow as tf

    layer, (query, value, mask) = HardAttention(AdditiveAttention(UNITS), expectation_rate=0.0, seed=8), example()
    query = np.repeat(query[:, :1], 40, axis=1)
    call(layer, query, value, mask)

    @tf.function(jit_compile=jit_compile)
    def decode(query, value, mask):
        prepared = layer.prepare(value)

        def step(query, state):
            query = tf.expand_dims(query, 1)
            _, weights, state = call(layer, query, value, mask, training=True, prepared=prepared, state=state)
            return weights[:, 0], state

        with tf.GradientTape() as tape:
            weights, state = scan_time(step, query, layer.init_state(value))
            loss = tf.reduce_sum(layer.estimator_loss(tf.reduce_sum(weights[..., 0], axis=1), state))
        return weights, tape.gradient(loss, layer.attention.score_kernel.value)

    weights, gradient = decode(*map(tf.constant, (query, value, mask)))
    assert np.all(np.sum(weights, axis=1).max(-1) < 40)
    assert np.all(np.isfinite(gradient))
    assert np.any(gradient)
    assert float(layer.baseline) != 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"estimator": "soft"},
            "`estimator` must be one of ('reinforce', 'gumbel', 'straight_through'). Received: estimator='soft'",
        ),
        ({"expectation_rate": 1.5}, "`expectation_rate` must be between 0 and 1. Received: expectation_rate=1.5"),
        ({"baseline_momentum": -1}, "`baseline_momentum` must be between 0 and 1. Received: baseline_momentum=-1"),
        ({"temperature": 0}, "`temperature` must be positive. Received: temperature=0"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        HardAttention(AdditiveAttention(UNITS), **options)


@pytest.mark.parametrize("wrong", [keras.layers.Dense(3), MultiHeadAttention(2, 3, return_weights=False)])
def test_what_it_wraps_must_be_an_attention_layer_with_weights(wrong):
    with pytest.raises(TypeError, match="`attention` must be an attention layer that returns weights. Received: att"):
        HardAttention(wrong)


@pytest.mark.parametrize("check", ATTENTION_CHECKS)
def test_monotonic_attention_keeps_the_contract(check):
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
