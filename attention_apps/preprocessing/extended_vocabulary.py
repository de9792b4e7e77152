"""Ids for out-of-vocabulary source words, so that a model can copy them.

With a vocabulary of V tokens, id V + s stands for the unknown word that first occurs at source position s.
All functions are graph code of core TensorFlow ops. Tokens are `(batch, length)`, ragged or padded with empty strings.

Reference: See et al. 2017, section 2.2 (the extended vocabulary of each source).
"""

import tensorflow as tf

from attention_apps.constants import SPECIAL_TOKENS, UNKNOWN
from attention_apps.preprocessing.vocabulary import Vocabulary

_LARGEST_FINGERPRINT = 2**63 - 1
_ROW_STEP = -7046029254386353131  # 2^64 over the golden ratio, as a signed number: keeps rows apart


def source_ids(tokens: tf.Tensor | tf.RaggedTensor, vocabulary: Vocabulary) -> tuple[tf.Tensor, tf.Tensor]:
    """Return ids for the encoder, where unknown words are `<unk>`, and ids of the extended vocabulary, for copying.

    Returns:
        Two int32 tensors `(batch, source)`, padded with 0.
    """
    tokens = _padded(tokens)
    token_ids = vocabulary.lookup(tokens)
    copied_ids = len(vocabulary) + _first_positions(tokens)
    return token_ids, tf.where(token_ids == UNKNOWN, copied_ids, token_ids)


def target_ids(
    target_tokens: tf.Tensor | tf.RaggedTensor, source_tokens: tf.Tensor | tf.RaggedTensor, vocabulary: Vocabulary
) -> tf.Tensor:
    """Return ids of the extended vocabulary, int32 `(batch, target)`. Unknown words not in the source are `<unk>`."""
    target_tokens, source_tokens = _padded(target_tokens), _padded(source_tokens)
    source_length = tf.shape(source_tokens)[1]
    positions = _first_positions(tf.concat([source_tokens, target_tokens], axis=1))[:, source_length:]  # (B, T)
    token_ids = vocabulary.lookup(target_tokens)
    can_be_copied = (token_ids == UNKNOWN) & (positions < source_length)
    return tf.where(can_be_copied, len(vocabulary) + positions, token_ids)


def resolve(
    token_ids: tf.Tensor, source_tokens: tf.Tensor | tf.RaggedTensor, vocabulary: Vocabulary
) -> tuple[tf.Tensor, tf.Tensor]:
    """Convert ids of the extended vocabulary to tokens. Padding, start and end become empty strings.

    Args:
        token_ids: `(batch, target)` or `(batch, beams, target)`.

    Returns:
        The tokens, and a mask of those copied from unknown source words, both shaped like `token_ids`.
    """
    size = len(vocabulary)
    spelled = tf.constant(["" if token in SPECIAL_TOKENS[:UNKNOWN] else token for token in vocabulary.tokens])
    source_tokens = _padded(source_tokens)
    source_length = tf.shape(source_tokens)[1]
    source_tokens = tf.concat([source_tokens, tf.fill([tf.shape(source_tokens)[0], 1], "")], axis=1)
    positions = tf.clip_by_value(token_ids - size, 0, source_length)
    copied = token_ids >= size
    words = tf.gather(spelled, tf.where(copied, 0, token_ids))
    return tf.where(copied, tf.gather(source_tokens, positions, batch_dims=1), words), copied


def _padded(tokens: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
    return tokens.to_tensor("") if isinstance(tokens, tf.RaggedTensor) else tokens


def _first_positions(tokens: tf.Tensor) -> tf.Tensor:
    """Return the first position of each token in its row, int32 `(batch, length)`.

    Tokens are compared by 64-bit fingerprints in one pass. Comparing every pair of strings is far slower.
    """
    shape = tf.shape(tokens)
    fingerprints = tf.strings.to_hash_bucket_fast(tokens, _LARGEST_FINGERPRINT)
    rows = tf.range(tf.cast(shape[0], tf.int64))[:, tf.newaxis]
    _, kinds = tf.unique(tf.reshape(fingerprints + rows * _ROW_STEP, [-1]))
    positions = tf.reshape(tf.broadcast_to(tf.range(shape[1]), shape), [-1])
    first = tf.math.unsorted_segment_min(positions, kinds, tf.size(positions))
    return tf.reshape(tf.gather(first, kinds), shape)
