"""Limits on the number of words of a summary, whose tokens are words and punctuation with joiner marks."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from attention_apps.constants import END, SPECIAL_TOKENS, VERY_NEGATIVE
from attention_apps.decoding.scorers import Scorer
from attention_apps.preprocessing.text import JOINER
from attention_apps.preprocessing.vocabulary import Vocabulary


def word_limit(
    vocabulary: Vocabulary, source_ids: tf.Tensor, min_words: int = 0, max_words: int | None = None
) -> Scorer:
    """Returns a scorer that limits the number of words, counted between spaces.

    Args:
        source_ids: `(batch, source)`, ids of the extended vocabulary. It has one additional id per position, all words.
    """
    batch, source = tf.unstack(tf.shape(source_ids))
    further = tf.zeros([source], tf.bool)
    joins_before = tf.concat([[word.startswith(JOINER) for word in vocabulary.tokens], further], axis=0)
    joins_after = tf.concat([[word.endswith(JOINER) for word in vocabulary.tokens], further], axis=0)
    is_end = tf.range(tf.size(joins_before)) == END

    def call(token: tf.Tensor, state: Mapping[str, Any]) -> tuple[tf.Tensor, dict[str, Any]]:
        is_real = token >= len(SPECIAL_TOKENS)  # the start token is not a word
        begins = is_real & ~tf.gather(joins_before, token) & ~state["joined"]
        words = state["words"] + tf.cast(begins | (is_real & (state["words"] == 0)), tf.int32)
        joined = is_real & tf.gather(joins_after, token)
        forbidden = is_end & (words < min_words)[:, tf.newaxis]
        if max_words is not None:
            full = (words >= max_words) & ~joined
            forbidden |= full[:, tf.newaxis] & ~joins_before & ~is_end
        return tf.where(forbidden, VERY_NEGATIVE, 0.0), {"words": words, "joined": joined}

    state = {"words": tf.zeros([batch], tf.int32), "joined": tf.zeros([batch], tf.bool)}
    return Scorer(call, state, upper_bound=0.0)
