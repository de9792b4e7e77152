import numpy as np
from keras import ops

from attention_apps.layers.masks import causal_mask, length_mask, masked_softmax, over_targets

RNG = np.random.default_rng(0)


def test_softmax_without_a_mask_is_the_plain_one():
    scores = RNG.normal(size=(2, 3, 5)).astype("float32")
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(ops.convert_to_numpy(masked_softmax(scores)), expected, atol=1e-6)


def test_masked_positions_get_no_weight_and_the_rest_sums_to_one():
    scores = RNG.normal(size=(2, 3, 5)).astype("float32")
    mask = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]], bool)
    weights = ops.convert_to_numpy(masked_softmax(scores, over_targets(mask)))
    assert (weights[0][:, [2, 4]] == 0).all()
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)


def test_a_row_without_real_positions_gets_no_weight_at_all():
    weights = masked_softmax(RNG.normal(size=(2, 5)).astype("float32"), np.array([[False] * 5, [True] * 5]))
    np.testing.assert_allclose(ops.convert_to_numpy(ops.sum(weights, -1)), [0, 1], atol=1e-6)


def test_half_precision_is_normalized_in_float32():
    scores = ops.cast(np.full((1, 3000), 8.0), "float16")
    weights = masked_softmax(scores, np.ones((1, 3000), bool))
    assert "float16" in str(weights.dtype)
    np.testing.assert_allclose(ops.convert_to_numpy(ops.sum(ops.cast(weights, "float32"))), 1, atol=1e-2)


def test_the_last_target_of_a_causal_mask_sees_every_source():
    assert ops.convert_to_numpy(causal_mask(2, 4)).tolist() == [[True, True, True, False], [True] * 4]
    assert ops.convert_to_numpy(causal_mask(3)).tolist() == np.tril(np.ones((3, 3), bool)).tolist()


def test_length_mask_is_true_before_the_length():
    assert ops.convert_to_numpy(length_mask([2, 0], 3)).tolist() == [[True, True, False], [False] * 3]


def test_no_source_mask_stays_none():
    assert over_targets(None) is None
