"""Limits on the number of words that a compressor keeps."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from attention_apps.applications.compression.config import CompressionDecodingOptions
from attention_apps.constants import VERY_NEGATIVE
from attention_apps.decoding.scorers import Scorer
from attention_apps.models.tag_decoder import DELETE, KEEP

_SIZE = KEEP + 1


def keep_limit(mask: tf.Tensor, options: CompressionDecodingOptions) -> Scorer:
    """Returns a scorer that applies `keep_bias` and the limits on the number of kept words.

    Args:
        mask: boolean `(batch, source)`, true for words.
    """
    lengths = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)

    def call(token: tf.Tensor, state: Mapping[str, Any]) -> tuple[tf.Tensor, dict[str, Any]]:
        kept = state["kept"] + tf.cast(token == KEEP, tf.int32)
        left = state["left"] - tf.cast(token >= DELETE, tf.int32)
        scores = options.keep_bias * _at(KEEP, tf.ones_like(kept, tf.bool))
        scores += VERY_NEGATIVE * _at(DELETE, (kept + left <= options.min_words) & (left > 0))
        if options.max_words is not None:
            scores += VERY_NEGATIVE * _at(KEEP, kept >= options.max_words)
        return scores, {"kept": kept, "left": left}

    return Scorer(call, {"kept": tf.zeros_like(lengths), "left": lengths}, upper_bound=max(options.keep_bias, 0.0))


def _at(tag, rows):
    """Returns `(rows, tags)` with 1 for the tag in the true rows, else 0."""
    return tf.cast(rows, tf.float32)[:, tf.newaxis] * tf.one_hot(tag, _SIZE)
