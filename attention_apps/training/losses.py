"""Losses of teacher forcing. Each is a sum over the batch: the trainer divides by the global number of target tokens.

Tokens are `(batch, target)` or `(batch, num_targets, target)`; id 0 is padding and counts nowhere.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from attention_apps.models.tokens import UNKNOWN

# Stands for a probability of zero, whose logarithm must be finite.
_TINY = 1e-30


def token_losses(outputs: Mapping[str, Any], targets: tf.Tensor, label_smoothing: float = 0.0) -> tf.Tensor:
    """Label-smoothed cross-entropy of each target token, zero where the target is padding.

    The smoothed target is 1 - ε on the right token and ε / V on each token of the vocabulary (Szegedy et al. 2016,
    section 7). With copying, the right token's probability is that of the mixture (See et al. 2017, equation 9), and
    what is spread over the vocabulary goes to the words as generated. No one-hot tensor and no mixture over the whole
    vocabulary is made.

    Args:
        outputs: the decoder's: `logits` `(..., target, vocabulary)`, and where it copies `switch` `(..., target)`,
            `attention` `(..., target, source)` and `source_ids` `(batch, source)`.
        targets: `(..., target)` of token ids; those beyond the vocabulary can only be copied.
        label_smoothing: ε.
    """
    targets = tf.cast(targets, tf.int32)
    right, mean = _log_probabilities(outputs["logits"], targets, with_mean=label_smoothing > 0)
    if outputs.get("switch") is not None:
        generate = tf.math.log_sigmoid(tf.cast(outputs["switch"], tf.float32))
        right, mean = _with_copying(right + generate, outputs, targets), mean + generate
    losses = (label_smoothing - 1.0) * right - label_smoothing * mean
    return tf.where(targets != 0, losses, tf.zeros_like(losses))


def doubly_stochastic_loss(attention: tf.Tensor, targets: tf.Tensor, source_mask: tf.Tensor | None) -> tf.Tensor:
    """Σ (1 - Σ_t α_ti)² over source positions i: look everywhere about once (Xu et al. 2015, equation 14)."""
    looked_at = tf.reduce_sum(_over_real_targets(attention, targets), axis=-2)  # (..., S)
    deviation = tf.square(1.0 - looked_at)
    if source_mask is not None:
        deviation *= tf.cast(_match_rank(source_mask, deviation), tf.float32)
    return tf.reduce_sum(deviation)


def guided_attention_loss(
    attention: tf.Tensor, targets: tf.Tensor, source_mask: tf.Tensor | None, width: float = 0.2
) -> tf.Tensor:
    """Σ A_ts (1 - exp(-(t/T - s/S)² / 2g²)): stay near the diagonal (Tachibana et al. 2018, section 4.1).

    T and S are the lengths of each target and source, g is `width`.
    """
    attention = _over_real_targets(attention, targets)
    shape = tf.shape(attention)
    target_places = _places(shape[-2], tf.reduce_sum(tf.cast(targets != 0, tf.float32), -1))  # (..., T)
    if source_mask is None:
        source_places = _places(shape[-1], tf.cast(shape[-1:], tf.float32))
    else:
        source_places = _places(shape[-1], tf.reduce_sum(tf.cast(source_mask, tf.float32), -1))  # (B, S)
        source_places = _match_rank(source_places, target_places)
    distance = target_places[..., :, tf.newaxis] - source_places[..., tf.newaxis, :]  # (..., T, S)
    return tf.reduce_sum(attention * (1.0 - tf.exp(-tf.square(distance) / (2 * width**2))))


def target_token_count(targets: tf.Tensor) -> tf.Tensor:
    """The number of real tokens among the targets, as a float."""
    return tf.reduce_sum(tf.cast(targets != 0, tf.float32))


def _log_probabilities(logits, targets, with_mean):
    """Log-probability of each target, and the mean of those of all words (zero if not wanted)."""
    size = logits.shape[-1]
    rows = tf.reshape(tf.cast(logits, tf.float32), (-1, size))
    ids = tf.reshape(tf.where(targets < size, targets, UNKNOWN), (-1,))

    @tf.custom_gradient
    def compute(rows):
        log_probabilities = tf.nn.log_softmax(rows)
        right = tf.gather(log_probabilities, ids, batch_dims=1)
        mean = tf.reduce_mean(log_probabilities, axis=-1) if with_mean else tf.zeros_like(right)

        def gradient(of_right, of_mean):
            if not with_mean:
                of_mean = tf.zeros_like(of_mean)
            dense = (of_mean / size)[:, tf.newaxis] - tf.exp(log_probabilities) * (of_right + of_mean)[:, tf.newaxis]
            return _add_at(dense, ids, of_right)

        return (right, mean), gradient

    right, mean = compute(rows)
    return tf.reshape(right, tf.shape(targets)), tf.reshape(mean, tf.shape(targets))


def _with_copying(generated, outputs, targets):
    """Log-probability of each target, generated or copied."""
    attention, source_ids = tf.cast(outputs["attention"], tf.float32), outputs["source_ids"]
    while len(source_ids.shape) < len(attention.shape):
        source_ids = source_ids[:, tf.newaxis]
    same = tf.cast(source_ids, tf.int32) == targets[..., tf.newaxis]  # (..., T, S)
    copied = tf.reduce_sum(tf.where(same, attention, 0.0), axis=-1)
    copied = tf.math.log(tf.maximum(copied, _TINY)) + tf.math.log_sigmoid(-tf.cast(outputs["switch"], tf.float32))
    generated = tf.where(targets < outputs["logits"].shape[-1], generated, tf.math.log(_TINY))
    return tf.reduce_logsumexp(tf.stack([generated, copied]), axis=0)


def _add_at(dense, ids, values):
    """Adds one value to each row of `dense`, in the column that `ids` names."""
    indices = tf.stack([tf.range(tf.shape(ids)[0]), ids], axis=1)
    return tf.tensor_scatter_nd_add(dense, indices, values)


def _over_real_targets(attention, targets):
    return tf.cast(attention, tf.float32) * tf.cast(targets != 0, tf.float32)[..., tf.newaxis]


def _places(size, lengths):
    """Positions 0 .. size - 1 as fractions of each length."""
    return tf.range(tf.cast(size, tf.float32)) / tf.maximum(lengths, 1.0)[..., tf.newaxis]


def _match_rank(source, reference):
    """`(batch, source)` as something that broadcasts over the several targets of one source, if there are any."""
    return source[:, tf.newaxis] if len(reference.shape) == 3 else source
