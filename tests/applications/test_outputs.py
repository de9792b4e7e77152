import numpy as np
import tensorflow as tf

from attention_apps.applications.outputs import best_tokens, clear_rows, ranked, token_probabilities

B, T, V = 2, 3, 5


def test_probabilities_are_those_of_the_tokens_and_1_for_padding():
    logits = np.random.default_rng(0).normal(size=(B, T, V)).astype(np.float32)
    token_ids = np.array([[4, 2, 0], [3, 1, 2]])
    found = token_probabilities({"logits": tf.constant(logits), "token_ids": tf.constant(token_ids)}).numpy()
    expected = np.take_along_axis(tf.nn.softmax(logits).numpy(), token_ids[..., np.newaxis], 2)[..., 0]
    expected[0, 2] = 1
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_cleared_rows_hold_nothing_and_the_others_what_they_held():
    outputs = {
        "text": tf.constant([["a", "b"], ["c", "d"]]),
        "score": tf.constant([[-1.0, -2.0], [-3.0, -4.0]]),
        "unsure": tf.constant([True, True]),
        "confidence": tf.constant([0.5, 0.25]),
        "attention": tf.ones([2, 3, 4, 5]),
    }
    cleared = {name: array.numpy() for name, array in clear_rows(outputs, tf.constant([False, True])).items()}
    assert cleared["text"].tolist() == [[b"a", b"b"], [b"", b""]]
    assert cleared["score"].tolist() == [[-1, -2], [-np.inf, -np.inf]]
    assert cleared["unsure"].tolist() == [True, False]
    assert cleared["confidence"].tolist() == [0.5, 0]
    assert cleared["attention"][0].all()
    assert not cleared["attention"][1].any()


def test_hypotheses_are_pairs_of_text_and_score():
    outputs = {"text": np.array([b"gr\xc3\xbcn", b""], object), "score": np.float32([-0.5, -np.inf])}
    assert ranked(outputs) == [("grün", -0.5), ("", -np.inf)]


def test_tokens_end_with_the_text():
    attention = np.arange(8.0).reshape(4, 2)
    tokens, rows = best_tokens({"tokens": np.array([b"a", b"b", b"", b""], object), "attention": attention})
    assert tokens == ["a", "b"]
    np.testing.assert_array_equal(rows, attention[:2])
