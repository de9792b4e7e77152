import numpy as np
import pytest
from keras import ops

from attention_apps.layers.luong_attention import LuongAttention
from tests.layers.contract import ATTENTION_CHECKS, TARGET, assert_close, call, example
from tests.layers.reference import dense, softmax

VARIANTS = [
    {"score": "dot", "window": "global"},
    {"score": "general", "window": "local-p", "half_width": 2, "units": 11},
    {"score": "concat", "window": "local-m", "half_width": 2},
]


@pytest.mark.parametrize("check", ATTENTION_CHECKS)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: f"{variant['score']}-{variant['window']}")
def test_it_keeps_the_contract(check, variant):
    check(lambda: LuongAttention(**variant), query_dim=7 if variant["score"] == "dot" else 4)


@pytest.mark.parametrize("score", ["dot", "general", "concat"])
@pytest.mark.parametrize("window", ["global", "local-m", "local-p"])
def test_it_is_the_formula_of_the_paper(score, window):
    layer = LuongAttention(score, window, half_width=1)
    query, value, mask = example()
    context, weights, _ = call(layer, query, value, mask)
    for row in range(len(query)):
        for position in range(TARGET):
            expected = expected_weights(layer, query[row, position], value[row], mask[row], position)
            assert_close((weights[row, position], context[row, position]), (expected, expected @ value[row]))


def expected_weights(layer, query, value, mask, position):
    """Equations 7 to 10, for one target position."""
    scores = np.array([expected_score(layer, query, key) for key in value])
    if layer.window == "global":
        return softmax(scores, mask)
    center = position
    if layer.window == "local-p":
        hidden = np.tanh(dense(layer.position_dense, query))
        center = mask.sum() / (1 + np.exp(-dense(layer.center_dense, hidden)))
    distance = np.arange(len(value)) - center
    weights = softmax(scores, mask & (np.abs(distance) <= layer.half_width))
    deviation = layer.half_width / 2
    return weights * np.exp(-(distance**2) / (2 * deviation**2)) if layer.window == "local-p" else weights


def expected_score(layer, query, key):
    if layer.score == "dot":
        return query @ key
    if layer.score == "general":
        return query @ dense(layer.key_dense, key)
    hidden = np.tanh(dense(layer.query_dense, query) + dense(layer.key_dense, key))
    return hidden @ ops.convert_to_numpy(layer.score_kernel)


def test_each_row_of_a_batch_has_a_position_of_its_own():
    layer, (query, value, _) = LuongAttention("dot", "local-m", half_width=1), example()
    state = {"position": ops.convert_to_tensor(np.array([0, 3], "int32"))}
    _, weights, state = call(layer, query, value, state=state)
    assert_close(state["position"], np.array([3, 6]))
    first = np.array(ops.convert_to_numpy(weights)[:, 0] > 0)
    assert first.tolist() == [[True, True, False, False, False], [False, False, True, True, True]]


def test_a_window_that_has_left_the_source_weighs_nothing():
    layer, (query, value, _) = LuongAttention("dot", "local-m", half_width=1), example()
    state = {"position": ops.convert_to_tensor(np.array([0, 6], "int32"))}
    _, weights, _ = call(layer, query, value, state=state)
    assert not np.any(ops.convert_to_numpy(weights)[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"score": "cosine"}, "`score` must be one of .* Received: score='cosine'"),
        ({"window": "local"}, "`window` must be one of .* Received: window='local'"),
        ({"half_width": 0}, "`half_width` must be at least 1. Received: half_width=0"),
        ({"units": 0}, "`units` must be a positive integer or `None`. Received: units=0"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        LuongAttention(**arguments)


def test_the_dot_product_needs_equal_sizes():
    query, value, _ = example(query_dim=4)
    with pytest.raises(ValueError, match="same last dimension with `score='dot'`. Received: query.shape=\\(2, 3, 4\\)"):
        call(LuongAttention("dot"), query, value)
