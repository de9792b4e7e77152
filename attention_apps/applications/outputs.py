"""Functions on pipeline outputs that the codecs of all applications share."""

import numpy as np
import tensorflow as tf

from attention_apps.training.losses import token_losses

Tensors = dict[str, tf.Tensor]


def token_probabilities(forced: Tensors) -> tf.Tensor:
    """Graph code: returns the probability of each token of the best text, `(batch, target)`, 1 at padding."""
    return tf.exp(-token_losses(forced, forced["token_ids"]))


def clear_rows(outputs: Tensors, rows: tf.Tensor) -> Tensors:
    """Graph code: clears some rows of the outputs: empty strings, zeros, and scores of -infinity."""
    return {name: _clear(tensor, rows, float("-inf") if name == "score" else None) for name, tensor in outputs.items()}


def _clear(tensor, rows, nothing):
    if nothing is None:
        nothing = "" if tensor.dtype == tf.string else tf.zeros([], tensor.dtype)
    shape = tf.concat([tf.shape(rows), tf.ones([tf.rank(tensor) - 1], tf.int32)], axis=0)
    return tf.where(tf.reshape(rows, shape), nothing, tensor)


def ranked(outputs: dict[str, np.ndarray]) -> list[tuple[str, float]]:
    """Returns text and score of each hypothesis, best first."""
    return [(text.decode(), score) for text, score in zip(outputs["text"], outputs["score"].tolist(), strict=True)]


def best_tokens(outputs: dict[str, np.ndarray]) -> tuple[list[str], np.ndarray]:
    """The tokens of the best text and the attention of each. Sub-words may be single bytes of a character."""
    written = np.flatnonzero(outputs["tokens"] != b"")
    return [token.decode(errors="replace") for token in outputs["tokens"][written]], outputs["attention"][written]
