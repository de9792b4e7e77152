import numpy as np
import pytest

from attention_apps.layers.scaled_dot_product_attention import ScaledDotProductAttention
from tests.layers.contract import ATTENTION_CHECKS, VALUE_DIM, assert_close, call, example
from tests.layers.reference import softmax


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
