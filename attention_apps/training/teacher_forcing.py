"""The losses of a batch whose targets are known."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from attention_apps.layers.coverage_attention import coverage_loss
from attention_apps.training.config import ScheduledSamplingConfig, TrainingConfig
from attention_apps.training.losses import (
    doubly_stochastic_loss,
    guided_attention_loss,
    target_token_count,
    token_losses,
)

ExtraLoss = Callable[..., tuple[Mapping[str, tf.Tensor], Mapping[str, tf.Tensor]]]


class TeacherForcing:
    """Cross-entropy of the true targets and what the configuration or the application adds to it.

    Args:
        model: a `Seq2Seq`.
        extra_loss: `extra_loss(model, batch, outputs, losses, epoch)` gives further losses by name, each a sum over the
            batch, and counts by name, which no gradient is taken of and which the logs add up. A loss that carries
            the name of an entry of `losses` takes its place. `outputs` is what the model returns in full, the memory
            included.
    """

    def __init__(self, model: keras.Model, config: TrainingConfig, extra_loss: ExtraLoss | None = None):
        self.model = model
        self.config = config
        self.extra_loss = extra_loss

    def signature(self, batch_signature: Any) -> Any:
        """The signature of what `losses` takes, given that of the data's batches."""
        return batch_signature

    def prepare(self, parts: tuple, rows: list, position: tuple[int, int]) -> tuple:
        """What `losses` takes, of each replica's part of a batch: here, just that."""
        return parts

    def losses(
        self, batch: Mapping[str, Any], position: tf.Tensor, step: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], Mapping[str, tf.Tensor], tf.Tensor]:
        """The named losses, each a sum over the batch, the named counts, and the number of target tokens.

        Args:
            position: epoch and number of the batch, `(2,)`.
            step: optimizer steps made so far.
        """
        tokens = tf.cast(batch["tokens"], tf.int32)
        inputs, targets = tokens[..., :-1], tokens[..., 1:]
        if self.config.scheduled_sampling.probability > 0:
            inputs = self._mix(batch["source"], inputs, position, step)
        outputs = self.model({"source": batch["source"], "tokens": inputs}, in_full=True, training=True)
        losses = self._target_losses(outputs, targets) | self._attention_losses(outputs, targets)
        counts = {}
        if self.extra_loss is not None:
            more, counts = self.extra_loss(
                model=self.model, batch=batch, outputs=outputs, losses=dict(losses), epoch=position[0]
            )
            losses |= more
        return losses, counts, target_token_count(targets)

    def _target_losses(self, outputs, targets):
        of_tokens = token_losses(outputs, targets, self.config.label_smoothing)
        losses = {"cross_entropy": tf.reduce_sum(of_tokens)}
        attention = getattr(self.model.decoder, "attention", None)
        if hasattr(attention, "estimator_loss"):
            log_likelihood = -tf.reshape(tf.reduce_sum(of_tokens, axis=-1), (-1,))
            is_real = tf.reshape(tf.reduce_any(targets != 0, axis=-1), (-1,))  # others fill up an example's targets
            estimates = attention.estimator_loss(log_likelihood, outputs["attention_state"], row_mask=is_real)
            losses["hard_attention"] = tf.reduce_sum(estimates)
        return losses

    def _attention_losses(self, outputs, targets):
        config, attention = self.config, outputs["attention"]
        if attention is None and (config.doubly_stochastic or config.coverage or config.guided):
            raise ValueError("`doubly_stochastic`, `coverage` and `guided` need a decoder with attention.")
        mask = outputs["memory"].get("mask")
        losses = {}
        if config.doubly_stochastic:
            losses["doubly_stochastic"] = config.doubly_stochastic * doubly_stochastic_loss(attention, targets, mask)
        if config.coverage:
            losses["coverage"] = config.coverage * _coverage(attention, targets)
        if config.guided:
            losses["guided"] = config.guided * guided_attention_loss(attention, targets, mask)
        return losses

    def _mix(self, source, inputs, position, step):
        """Scheduled sampling in two passes (Mihaylova and Martins 2019): some inputs become the model's own words."""
        probability = sampling_probability(self.config.scheduled_sampling, step)

        def mixed():
            logits = self.model({"source": source, "tokens": inputs}, training=False)
            predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)[..., :-1]
            draws = tf.random.stateless_uniform(tf.shape(predicted), self._seed(position))
            replace = (draws < probability) & (inputs[..., 1:] != 0)
            return tf.concat([inputs[..., :1], tf.where(replace, predicted, inputs[..., 1:])], axis=-1)

        return tf.stop_gradient(tf.cond(probability > 0, mixed, lambda: inputs))

    def _seed(self, position):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        seed = tf.random.experimental.stateless_fold_in([self.config.seed, replica], position[0])
        return tf.random.experimental.stateless_fold_in(seed, position[1])


def sampling_probability(config: ScheduledSamplingConfig, step: tf.Tensor) -> tf.Tensor:
    """The share of inputs that are the model's own words at a step."""
    since = tf.cast(step, tf.float32) - config.start_step
    reached = tf.clip_by_value((since + 1.0) / max(config.ramp_steps, 1), 0.0, 1.0)
    return config.probability * reached


def _coverage(attention, targets):
    shape = tf.shape(attention)
    losses = coverage_loss(tf.reshape(attention, (-1, shape[-2], shape[-1])), tf.reshape(targets != 0, (-1, shape[-2])))
    return tf.reduce_sum(losses)
