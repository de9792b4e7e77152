"""The confidence of an answer, and the threshold below which it is unsure."""

from dataclasses import dataclass

import tensorflow as tf

from attention_apps.checks import require_between

_TINY = 1e-6


@dataclass(frozen=True)
class ConfidenceConfig:
    """The calibration of a preset's confidence.

    The raw confidence p of an answer is a geometric mean of probabilities. The calibrated confidence is
    `sigmoid(slope · logit(p) + offset)`. With a slope of 1 and an offset of 0 it equals p.

    Args:
        slope, offset: fitted on data that was not used for training.
        threshold: an answer with a lower confidence is `unsure`. With 0, no answer is.
    """

    slope: float = 1.0
    offset: float = 0.0
    threshold: float = 0.0

    def __post_init__(self) -> None:
        require_between(self, 0, 100, "slope")
        require_between(self, -100, 100, "offset")
        require_between(self, 0, 1, "threshold")


def calibrated(raw: tf.Tensor, config: ConfidenceConfig) -> dict[str, tf.Tensor]:
    """Graph code: computes `confidence` and `unsure` `(batch,)` from raw confidences."""
    clipped = tf.clip_by_value(raw, _TINY, 1 - _TINY)
    logit = tf.math.log(clipped) - tf.math.log1p(-clipped)
    is_identity = config.slope == 1 and config.offset == 0
    confidence = raw if is_identity else tf.sigmoid(config.slope * logit + config.offset)
    return {"confidence": confidence, "unsure": confidence < config.threshold}


def geometric_mean(probabilities: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Graph code: computes the geometric mean of `(batch, items)`, weighted by `counts`. 0 if all counts are 0."""
    counts = tf.cast(counts, probabilities.dtype)
    total = tf.reduce_sum(counts, axis=1)
    logs = tf.math.log(tf.maximum(probabilities, 1e-9)) * counts
    return tf.where(total > 0, tf.exp(tf.reduce_sum(logs, axis=1) / tf.maximum(total, 1)), 0.0)
