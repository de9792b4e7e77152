"""One optimizer step: losses, gradients, sums over replicas, the update. Whole in one graph."""

from typing import Any

import keras
import tensorflow as tf

from attention_apps.training.averaging import MovingAverage
from attention_apps.training.distribution import local_shards, run_on_shards, sum_over_replicas
from attention_apps.training.optimizer import AdamW


class TrainStep:
    """Makes steps from batches, each one call of a graph that is traced once for all shapes.

    The loss is divided by the number of target tokens of the whole step: all replicas, all accumulated batches.

    Args:
        objective: its `losses(batch, position, step)` gives named losses, named counts, all of them sums over the
            batch, and the number of target tokens.
        average: a moving average to keep up to date, or `None`.
        signature: of one replica's part of a batch.
        accumulate: the most batches of a step.
    """

    def __init__(
        self,
        model: keras.Model,
        objective: Any,
        optimizer: AdamW,
        average: MovingAverage | None,
        signature: Any,
        accumulate: int = 1,
    ):
        self.strategy = tf.distribute.get_strategy()
        self.objective = objective
        self.optimizer = optimizer
        self.average = average
        # The names of the figures that a step returns, and those of them that are counts; known after the first step.
        self.names: list[str] = []
        self.counts: list[str] = []
        self._weights = [variable.value for variable in model.trainable_variables]
        self._paths = [variable.path for variable in model.trainable_variables]
        self._adds_up = accumulate > 1 or self.strategy.num_replicas_in_sync > 1
        self._accumulators = [_accumulator(v) for v in self._weights] if accumulate > 1 else None
        parts = len(local_shards(self.strategy))
        signature = [(signature,) * parts, tf.TensorSpec((2,), tf.int32)]
        self._accumulate_graph = tf.function(self._accumulate, signature, autograph=False)
        sums = (tf.TensorSpec((None,), tf.float32),) * parts
        self._step_graph = tf.function(self._step, [*signature, sums], autograph=False)
        self._no_sums = (tf.zeros(1),) * parts

    def __call__(self, batches: list[tuple], positions: list[tuple[int, int]]) -> tf.Tensor:
        """Makes one step of one or more batches, each given as the parts of this process's replicas.

        Args:
            positions: of each batch, its epoch and its number.

        Returns:
            A vector of figures, named by `self.names`.
        """
        sums = self._no_sums
        for parts, position in zip(batches[:-1], positions[:-1], strict=True):
            more = self._accumulate_graph(parts, tf.constant(position, tf.int32))
            sums = tuple(a + b for a, b in zip(sums, more, strict=True))
        return self._step_graph(batches[-1], tf.constant(positions[-1], tf.int32), sums)

    def _accumulate(self, parts, position):
        def run(batch):
            gradients, sums = self._gradients(batch, position)
            for accumulator, gradient in zip(self._accumulators, gradients, strict=True):
                if gradient is not None:
                    accumulator.assign_add(gradient)
            return tf.stack(list(sums.values()))

        return run_on_shards(self.strategy, run, parts)

    def _step(self, parts, position, earlier_sums):
        def run(part):
            batch, earlier = part
            gradients, sums = self._gradients(batch, position)
            if self._accumulators is not None:
                gradients = [_take(a, g) for a, g in zip(self._accumulators, gradients, strict=True)]
            totals = tf.ensure_shape(tf.stack(list(sums.values())) + earlier, (len(sums),))
            *present, totals = sum_over_replicas([*(g for g in gradients if g is not None), totals])
            present = iter(present)
            gradients = [None if gradient is None else next(present) for gradient in gradients]
            return self._apply(gradients, dict(zip(sums, tf.unstack(totals), strict=True)))

        return run_on_shards(self.strategy, run, list(zip(parts, earlier_sums, strict=True)))[0]

    def _gradients(self, batch, position):
        """Gradients of all weights, and the sums: `tokens`, each named loss and each named count."""
        with tf.GradientTape() as tape:
            losses, counts, tokens = self.objective.losses(batch, position, self.optimizer.steps)
            losses = {name: tf.cast(loss, tf.float32) for name, loss in losses.items()}
            # The mean of the part, and not the sum: in float16 its gradients are less likely to overflow.
            loss = tf.add_n(list(losses.values())) / tf.maximum(tokens, 1.0)
            scaled = loss * self.optimizer.loss_scale
        gradients = tape.gradient(scaled, self._weights)
        if self._adds_up:
            gradients = [None if g is None else tf.convert_to_tensor(g) * tokens for g in gradients]
        self.counts = list(counts)
        return gradients, {"tokens": tokens, **losses, **{n: tf.cast(count, tf.float32) for n, count in counts.items()}}

    def _apply(self, gradients, sums):
        tokens = tf.maximum(sums.pop("tokens"), 1.0)
        counts = {name: sums.pop(name) for name in self.counts}
        self._check_any(gradients)
        figures = self.optimizer.apply(gradients, tokens if self._adds_up else tf.constant(1.0))
        if self.average is not None:
            self.average.update(self.optimizer.steps, figures["finite"])
        figures = {"loss": tf.add_n(list(sums.values())) / tokens, "tokens": tokens, **figures}
        if len(sums) > 1:
            figures |= {name: total / tokens for name, total in sums.items()}
        figures |= counts
        self.names = list(figures)
        return tf.stack([tf.cast(figure, tf.float32) for figure in figures.values()])

    def _check_any(self, gradients):
        if all(gradient is None for gradient in gradients):
            raise ValueError(f"None of the weights that learn has a part in the loss: {', '.join(self._paths)}")


def _accumulator(weight):
    return tf.Variable(
        tf.zeros(weight.shape),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )


def _take(accumulator, gradient):
    """The accumulated gradient with the last one added; the accumulator begins anew."""
    if gradient is None:
        return None
    total = accumulator + gradient
    accumulator.assign(tf.zeros_like(total))
    return total
