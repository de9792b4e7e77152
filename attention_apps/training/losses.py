"""Losses of teacher forcing. Each is a sum over the batch; the trainer divides by the global number of target tokens.

Tokens are `(batch, target)` or `(batch, num_targets, target)`. Padding (id 0) contributes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from attention_apps.checks import require_at_least, require_between
from attention_apps.constants import PADDING, UNKNOWN
from attention_apps.decoding.ctc import ctc_losses

# Replaces a probability of zero, so that its logarithm is finite.
_TINY = 1e-30


def token_losses(outputs: Mapping[str, Any], targets: tf.Tensor, label_smoothing: float = 0.0) -> tf.Tensor:
    """Compute the label-smoothed cross-entropy of each target token, zero where the target is padding.

    The smoothed target is 1 - ε on the true token and ε / V on each token of the vocabulary (Szegedy et al. 2016,
    section 7). With copying, the true token has the probability of the mixture (See et al. 2017, equation 9), and
    the mass spread over the vocabulary applies to the generation distribution. Neither one-hot targets nor the
    mixture over the whole vocabulary are materialized.

    Args:
        outputs: the decoder's outputs: `logits` `(..., target, vocabulary)`; with copying also `switch`
            `(..., target)`, `attention` `(..., target, source)` and `source_ids` `(batch, source)`.
        targets: token ids `(..., target)`. Ids beyond the vocabulary can only be copied.
        label_smoothing: ε.
    """
    targets = tf.cast(targets, tf.int32)
    right, mean = _log_probabilities(outputs["logits"], targets, with_mean=label_smoothing > 0)
    if outputs.get("switch") is not None:
        generate = tf.math.log_sigmoid(tf.cast(outputs["switch"], tf.float32))
        right, mean = _with_copying(right + generate, outputs, targets), mean + generate
    losses = (label_smoothing - 1.0) * right - label_smoothing * mean
    return tf.where(targets != PADDING, losses, tf.zeros_like(losses))


def doubly_stochastic_loss(attention: tf.Tensor, targets: tf.Tensor, source_mask: tf.Tensor | None) -> tf.Tensor:
    """Σ (1 - Σ_t α_ti)² over source positions i: attend everywhere about once (Xu et al. 2015, equation 14)."""
    attended = tf.reduce_sum(_over_real_targets(attention, targets), axis=-2)  # (..., S)
    deviation = tf.square(1.0 - attended)
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
    target_places = _places(shape[-2], tf.reduce_sum(tf.cast(targets != PADDING, tf.float32), -1))  # (..., T)
    if source_mask is None:
        source_places = _places(shape[-1], tf.cast(shape[-1:], tf.float32))
    else:
        source_places = _places(shape[-1], tf.reduce_sum(tf.cast(source_mask, tf.float32), -1))  # (B, S)
        source_places = _match_rank(source_places, target_places)
    distance = target_places[..., :, tf.newaxis] - source_places[..., tf.newaxis, :]  # (..., T, S)
    return tf.reduce_sum(attention * (1.0 - tf.exp(-tf.square(distance) / (2 * width**2))))


def consistency_loss(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """½ Σ KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁) between two passes over the same examples with different dropout.

    The first half of the batch is one pass, the second half is the other.

    Reference:
        Liang et al. 2021, "R-Drop: Regularized Dropout for Neural Networks", equation 2.
    """
    log_probabilities = tf.nn.log_softmax(tf.cast(logits, tf.float32))
    first, second = tf.split(log_probabilities, 2)
    divergence = tf.reduce_sum((tf.exp(first) - tf.exp(second)) * (first - second), axis=-1)
    return 0.5 * tf.reduce_sum(tf.where(tf.split(targets, 2)[0] != PADDING, divergence, 0.0))


@dataclass(frozen=True)
class PointingLoss:
    """An `extra_loss` of `TeacherForcing`: λ Σ -log Σ_s α_ts over the tokens t with known regions, s among these.

    It draws attention to what a token names. The `regions` of the batch are booleans `(..., target + 1, source)`, all
    false for a token without known regions.

    Args:
        weight: λ.

    Reference:
        Liu et al. 2017, "Attention Correctness in Neural Image Captioning", section 4.
    """

    weight: float

    def __post_init__(self) -> None:
        require_at_least(self, 0, "weight")

    def __call__(
        self,
        model: keras.Model,
        batch: Mapping[str, Any],
        outputs: Mapping[str, Any],
        losses: Mapping[str, tf.Tensor],
        epoch: tf.Tensor,
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """Return the weighted loss `pointing`, and the number of tokens with known regions."""
        regions = batch["regions"][..., 1:, :]  # attention belongs to the targets, which lack the start token
        is_known = tf.reduce_any(regions, axis=-1)
        inside = tf.reduce_sum(tf.where(regions, tf.cast(outputs["attention"], tf.float32), 0.0), axis=-1)
        of_tokens = tf.where(is_known, -tf.math.log(tf.maximum(inside, _TINY)), 0.0)
        return {"pointing": self.weight * tf.reduce_sum(of_tokens)}, {"pointed": tf.math.count_nonzero(is_known)}


@dataclass(frozen=True)
class CTCLoss:
    """An `extra_loss` of `TeacherForcing`: λ · CTC + (1 - λ) · cross-entropy (Kim et al. 2017, equation 7).

    CTC skips a text with more letters than its recording has frames. The log counts these texts.

    Args:
        weight: λ.
        ctc_only_epochs: the number of initial epochs with λ = 1, which give attention an encoder to align to.
    """

    weight: float = 0.5
    ctc_only_epochs: int = 0

    def __post_init__(self) -> None:
        require_between(self, 0, 1, "weight")
        require_at_least(self, 0, "ctc_only_epochs")

    def __call__(
        self,
        model: keras.Model,
        batch: Mapping[str, Any],
        outputs: Mapping[str, Any],
        losses: Mapping[str, tf.Tensor],
        epoch: tf.Tensor,
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """Return the weighted losses `ctc` and `cross_entropy` and the count `ctc_skipped`."""
        memory = outputs["memory"]
        of_texts, fits = ctc_losses(memory["ctc_logits"], memory["mask"], tf.cast(batch["tokens"], tf.int32))
        weight = tf.where(epoch < self.ctc_only_epochs, 1.0, self.weight)
        weighted = {
            "ctc": weight * tf.reduce_sum(of_texts),
            "cross_entropy": (1.0 - weight) * losses["cross_entropy"],
        }
        return weighted, {"ctc_skipped": tf.math.count_nonzero(~fits)}


def target_token_count(targets: tf.Tensor) -> tf.Tensor:
    """Count the targets that are not padding, as a float."""
    return tf.reduce_sum(tf.cast(targets != PADDING, tf.float32))


def _log_probabilities(logits, targets, with_mean):
    """Log-probability of each target, and the mean over the vocabulary (zero unless `with_mean`)."""
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
            places = tf.stack([tf.range(tf.shape(ids)[0]), ids], axis=1)
            return tf.tensor_scatter_nd_add(dense, places, of_right)

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


def _over_real_targets(attention, targets):
    return tf.cast(attention, tf.float32) * tf.cast(targets != PADDING, tf.float32)[..., tf.newaxis]


def _places(size, lengths):
    """Positions 0 .. size - 1 as fractions of each length."""
    return tf.range(tf.cast(size, tf.float32)) / tf.maximum(lengths, 1.0)[..., tf.newaxis]


def _match_rank(source, reference):
    """Make `(batch, source)` broadcast over several targets per source, if `reference` has them."""
    return source[:, tf.newaxis] if len(reference.shape) == 3 else source
