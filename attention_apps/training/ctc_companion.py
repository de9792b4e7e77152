"""CTC as a companion of cross-entropy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from attention_apps.models.ctc import ctc_losses


@dataclass(frozen=True)
class CTCCompanion:
    """An `extra_loss` of `TeacherForcing`: λ · CTC + (1 - λ) · cross-entropy (Kim et al. 2017, equation 7).

    A text that has more letters than its recording has frames for is skipped by CTC; the log counts such texts.

    Args:
        weight: λ.
        alone_epochs: epochs at the beginning in which λ is 1, so that the encoder has something to attend to.
    """

    weight: float = 0.5
    alone_epochs: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise ValueError(f"`weight` must be between 0 and 1. Received: weight={self.weight}")
        if self.alone_epochs < 0:
            raise ValueError(f"`alone_epochs` must be at least 0. Received: alone_epochs={self.alone_epochs}")

    def __call__(
        self,
        model: keras.Model,
        batch: Mapping[str, Any],
        outputs: Mapping[str, Any],
        losses: Mapping[str, tf.Tensor],
        epoch: tf.Tensor,
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """The weighted losses, `ctc` and `cross_entropy`, and the count `ctc_skipped`."""
        memory = outputs["memory"]
        of_texts, fits = ctc_losses(memory["ctc_logits"], memory["mask"], tf.cast(batch["tokens"], tf.int32))
        weight = tf.where(epoch < self.alone_epochs, 1.0, self.weight)
        weighted = {
            "ctc": weight * tf.reduce_sum(of_texts),
            "cross_entropy": (1.0 - weight) * losses["cross_entropy"],
        }
        return weighted, {"ctc_skipped": tf.math.count_nonzero(~fits)}
