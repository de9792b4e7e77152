import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.layers.dot_product_attention import MultiHeadAttention, ScaledDotProductAttention
from attention_apps.layers.sequence_ops import scan_time
from tests.layers.contract import ATTENTION_CHECKS, VALUE_DIM, assert_close, call, example
from tests.layers.reference import multi_head_attention, softmax


@pytest.mark.parametrize("check", ATTENTION_CHECKS)
def test_it_keeps_the_contract(check):
    check(ScaledDotProductAttention)


@pytest.mark.parametrize("causal", [False, True])
def test_it_is_the_formula_of_the_paper(causal):
    query, value, mask = example()
    context, weights, _ = call(ScaledDotProductAttention(causal=causal), query, value, mask)
    seen = mask[:, None] & (np.tri(3, 5, 2, dtype=bool) if causal else True)
    expected = softmax(query @ value.swapaxes(1, 2) / np.sqrt(VALUE_DIM), seen)
    assert_close((weights, context), (expected, expected @ value))


def test_causal_weights_lie_below_the_diagonal():
    _, value, _ = example()
    _, weights, _ = call(ScaledDotProductAttention(causal=True), value, value)
    assert not np.any(np.triu(np.array(weights)[0], 1))


def test_query_and_value_must_be_of_the_same_size():
    query, value, _ = example(query_dim=4)
    with pytest.raises(ValueError, match="must have the same last dimension. Received: query.shape=\\(2, 3, 4\\)"):
        call(ScaledDotProductAttention(), query, value)


BATCH, TIME, DIM = 2, 5, 7


@pytest.mark.parametrize("check", ATTENTION_CHECKS)
def test_multi_head_attention_keeps_the_contract(check):
    check(lambda: MultiHeadAttention(6, 3, num_key_value_heads=2), query_dim=4)


@pytest.mark.parametrize("heads", [None, 3, 1])
@pytest.mark.parametrize("causal", [False, True])
def test_multi_head_attention_is_the_formula_of_the_paper(heads, causal):
    layer = MultiHeadAttention(6, 4, num_key_value_heads=heads, causal=causal)
    query, value, mask = example(query_dim=10)
    context, weights, _ = call(layer, query, value, mask)
    seen = mask[:, None] & (np.tri(3, 5, 2, dtype=bool) if causal else True)
    expected_context, expected_weights = multi_head_attention(layer, query, value, seen)
    assert_close((context, weights), (expected_context, expected_weights))


@pytest.mark.parametrize("heads", [None, 3, 1])
@pytest.mark.parametrize("causal", [False, True])
def test_without_weights_the_context_is_the_same(heads, causal):
    arguments = {"num_key_value_heads": heads, "causal": causal}
    layer, fused = MultiHeadAttention(6, 4, **arguments), MultiHeadAttention(6, 4, return_weights=False, **arguments)
    inputs = example(query_dim=10)
    inputs[2][0] = False
    call(layer, *inputs)
    call(fused, *inputs)
    fused.set_weights(layer.get_weights())
    for mask in (inputs[2], None):
        context, weights, _ = call(fused, *inputs[:2], mask)
        assert weights is None
        assert_close(context, call(layer, *inputs[:2], mask)[0])


@pytest.mark.parametrize("return_weights", [True, False])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (2, 3), (5,)])
def test_going_stepwise_with_a_cache_changes_nothing(sizes, return_weights):
    layer = MultiHeadAttention(6, 4, num_key_value_heads=3, causal=True, return_weights=return_weights)
    _, inputs, _ = example()
    expected, expected_weights, _ = call(layer, inputs, inputs)
    state = layer.init_state(ops.convert_to_tensor(inputs), max_length=8)
    contexts, start = [], 0
    for size in sizes:
        part = inputs[:, start : start + size]
        context, weights, state = call(layer, part, part, state=state)
        contexts.append(context)
        start += size
    assert_close(ops.concatenate(contexts, axis=1), expected)
    assert_close(state["position"], np.full(BATCH, TIME))
    if return_weights:
        assert_close(weights[:, -1, :TIME], expected_weights[:, -1])
        assert not np.any(ops.convert_to_numpy(weights)[:, :, TIME:])


def test_the_cache_goes_through_a_loop_in_a_graph():
    layer, (_, inputs, _) = MultiHeadAttention(6, 4, causal=True), example()
    expected = call(layer, inputs, inputs)[0]

    def step(part, state):
        part = ops.expand_dims(part, 1)
        context, _, state = layer(part, part, state=state)
        return context[:, 0], state

    def run(inputs):
        return scan_time(step, inputs, layer.init_state(inputs, max_length=TIME))[0]

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        run = tf.function(run, input_signature=[tf.TensorSpec((None, None, DIM))])
    assert_close(run(ops.convert_to_tensor(inputs)), expected)


def test_the_rows_of_a_cache_may_be_reordered():
    layer, (_, inputs, _) = MultiHeadAttention(6, 4, causal=True), example()
    expected = call(layer, inputs[::-1].copy(), inputs[::-1].copy())[0]
    state = layer.init_state(ops.convert_to_tensor(inputs), max_length=TIME)
    _, _, state = call(layer, inputs[:, :4], inputs[:, :4], state=state)
    state = {name: ops.flip(tensor, axis=0) for name, tensor in state.items()}
    last = inputs[::-1, 4:].copy()
    assert_close(call(layer, last, last, state=state)[0][:, 0], expected[:, 4])


@pytest.mark.parametrize("return_weights", [True, False])
def test_dropout_is_for_training_only(return_weights):
    layer, inputs = MultiHeadAttention(6, 4, dropout=0.5, return_weights=return_weights), example()
    first, second = (call(layer, *inputs, training=True)[0] for _ in range(2))
    assert np.abs(ops.convert_to_numpy(first - second)).max() > 1e-3
    assert_close(call(layer, *inputs, training=False)[0], call(layer, *inputs)[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 0, "key_dim": 4}, "must be positive. Received: num_heads=0, key_dim=4"),
        ({"num_heads": 2, "key_dim": 0}, "must be positive. Received: num_heads=2, key_dim=0"),
        (
            {"num_heads": 4, "key_dim": 3, "num_key_value_heads": 3},
            "must be a multiple of `num_key_value_heads`. Received: num_heads=4, num_key_value_heads=3",
        ),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**arguments)


def test_a_cache_needs_causal_attention():
    with pytest.raises(ValueError, match="A cache needs `causal=True`. Received: causal=False"):
        MultiHeadAttention(6, 4).init_state(ops.ones((BATCH, TIME, DIM)), max_length=8)
