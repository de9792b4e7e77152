"""One optimizer step in one graph, on one or several devices or machines; and its metrics.

Every replica computes the gradients of its part of each batch. All replicas apply the same sum, so their weights stay
equal. All workers run the same loop and must make the same decisions, so the chief decides whatever depends on a clock.
"""

import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from attention_apps.training.optimizer import AdamW, MovingAverage

# A run stops after this many steps in a row with non-finite gradients: it will not recover.
MOST_FAILURES = 50
_NOT_SHOWN = ("tokens", "finite")


def find_strategy() -> tf.distribute.Strategy:
    """Choose the distribution strategy for this process.

    Several workers if `TF_CONFIG` names them (call this before TensorFlow computes anything), all GPUs if there are
    several, otherwise no distribution. Create the model and its trainer in `strategy.scope()`.
    """
    if os.environ.get("TF_CONFIG"):
        return tf.distribute.MultiWorkerMirroredStrategy()
    if len(tf.config.list_logical_devices("GPU")) > 1:
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes the checkpoints and logs."""
    resolver = strategy.cluster_resolver
    if resolver is None or not resolver.cluster_spec().as_dict():
        return True
    if "chief" in resolver.cluster_spec().as_dict():
        return resolver.task_type == "chief"
    return resolver.task_id == 0


def local_shards(strategy: tf.distribute.Strategy) -> range:
    """Return the indices of this process's replicas among all replicas."""
    if strategy.num_replicas_in_sync == 1:
        return range(1)
    local, resolver = len(strategy.extended.worker_devices), strategy.cluster_resolver
    if local == strategy.num_replicas_in_sync:
        return range(local)
    kinds = sorted(resolver.cluster_spec().as_dict())  # "chief" comes before "worker"
    before = sum(resolver.cluster_spec().num_tasks(kind) for kind in kinds if kind < resolver.task_type)
    first = (before + resolver.task_id) * local
    return range(first, first + local)


def run_on_shards(strategy: tf.distribute.Strategy, function: Callable, parts: Sequence[Any]) -> tuple:
    """Call `function(part)` on each replica of this process with its part, inside a graph."""
    if strategy.num_replicas_in_sync == 1:
        return (function(parts[0]),)

    def run():
        number = tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group)
        return function(parts[number % len(parts)])

    return strategy.experimental_local_results(strategy.run(run))


def chief_value(strategy: tf.distribute.Strategy, value: float) -> float:
    """Return the chief's value on all workers. All of them must call this."""
    if strategy.num_replicas_in_sync == 1:
        return value
    return float(_broadcast(strategy, tf.constant(value, tf.float64)))


@tf.function
def _broadcast(strategy, value):
    def contribute():
        context = tf.distribute.get_replica_context()
        mine = tf.where(context.replica_id_in_sync_group == 0, value, tf.zeros_like(value))
        return context.all_reduce(tf.distribute.ReduceOp.SUM, mine)

    return strategy.experimental_local_results(strategy.run(contribute))[0]


class TrainStep:
    """A callable that trains on one or more batches. Its graph is traced once for all shapes.

    The loss is divided by the number of target tokens of the whole step: all replicas, all accumulated batches.

    Args:
        objective: its `losses(batch, position, step)` returns losses and counts by name, each a sum over the batch,
            and the number of target tokens.
        average: a moving average to update, or `None`.
        signature: the signature of one replica's part of a batch.
        accumulate: the maximum number of batches per step.
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
        # The names of the metrics of a step, and which of them are counts. Known after the first step.
        self.names: list[str] = []
        self.counts: list[str] = []
        self._weights = [variable.value for variable in model.trainable_variables]
        self._paths = [variable.path for variable in model.trainable_variables]
        self._adds_up = accumulate > 1 or self.strategy.num_replicas_in_sync > 1
        # Each replica accumulates its own gradients.
        replicated: dict[str, Any] = {
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": tf.VariableAggregation.SUM,
        }
        self._accumulators = [
            tf.Variable(tf.zeros(weight.shape), trainable=False, **replicated)
            for weight in (self._weights if accumulate > 1 else ())
        ]
        parts = len(local_shards(self.strategy))
        signature = [(signature,) * parts, tf.TensorSpec((2,), tf.int32)]
        self._accumulate_graph = tf.function(self._accumulate, signature, autograph=False)
        sums = (tf.TensorSpec((None,), tf.float32),) * parts
        self._step_graph = tf.function(self._step, [*signature, sums], autograph=False)
        self._no_sums = (tf.zeros(1),) * parts

    def __call__(self, batches: list[tuple], positions: list[tuple[int, int]]) -> tf.Tensor:
        """Train on one or more batches, each split into parts for this process's replicas.

        Args:
            positions: epoch and number of each batch.

        Returns:
            A vector of metrics with the names `self.names`.
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
            # Add the accumulated gradients and reset them. Without accumulation there are none.
            for index, accumulator in enumerate(self._accumulators):
                if gradients[index] is not None:
                    gradients[index] = accumulator + gradients[index]
                    accumulator.assign(tf.zeros_like(gradients[index]))
            totals = tf.ensure_shape(tf.stack(list(sums.values())) + earlier, (len(sums),))
            summed = [*(gradient for gradient in gradients if gradient is not None), totals]
            if self.strategy.num_replicas_in_sync > 1:
                summed = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, summed)
            *present, totals = summed
            present = iter(present)
            gradients = [None if gradient is None else next(present) for gradient in gradients]
            return self._apply(gradients, dict(zip(sums, tf.unstack(totals), strict=True)))

        return run_on_shards(self.strategy, run, list(zip(parts, earlier_sums, strict=True)))[0]

    def _gradients(self, batch, position):
        """The gradients of all weights, and the sums: `tokens`, every loss and every count."""
        with tf.GradientTape() as tape:
            losses, counts, tokens = self.objective.losses(batch, position, self.optimizer.steps)
            losses = {name: tf.cast(loss, tf.float32) for name, loss in losses.items()}
            # The mean over the part, because the float16 gradients of the sum would overflow more often.
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
        if all(gradient is None for gradient in gradients):
            raise ValueError(f"No trainable weight receives a gradient: {', '.join(self._paths)}")
        metrics = self.optimizer.apply(gradients, tokens if self._adds_up else tf.constant(1.0))
        if self.average is not None:
            self.average.update(self.optimizer.steps, metrics["finite"])
        metrics = {"loss": tf.add_n(list(sums.values())) / tokens, "tokens": tokens, **metrics}
        if len(sums) > 1:
            metrics |= {name: total / tokens for name, total in sums.items()}
        metrics |= counts
        self.names = list(metrics)
        return tf.stack([tf.cast(metric, tf.float32) for metric in metrics.values()])


class StepMetrics:
    """Collects the metrics of steps between two rows of the log, and fetches them from the device only on demand."""

    def __init__(self):
        # The number of steps with non-finite gradients that were fetched so far.
        self.skipped = 0
        self._pending: list[tf.Tensor] = []
        self._failures = 0
        self._rows: list[np.ndarray] = []
        self._since = time.monotonic()

    def add(self, metrics: tf.Tensor) -> None:
        """Add the metrics of a step."""
        self._pending.append(metrics)

    def fetch(self, names: list[str], counts: Collection[str], end_window: bool) -> dict[str, float]:
        """Return the metrics of the window and `tokens_per_second`, or nothing if there was no finite step.

        Args:
            names: the names of all metrics.
            counts: the metrics to add up. The others are averaged over tokens.
            end_window: whether the next step begins a new window.
        """
        fetched, self._pending = [np.asarray(metrics) for metrics in self._pending], []
        for row in fetched:
            self._count_failure(row[names.index("finite")] == 0)
        rows = [*self._rows, *(row for row in fetched if row[names.index("finite")])]
        since = self._since
        self._rows = [] if end_window else rows
        self._since = time.monotonic() if end_window else since
        if not rows:
            return {}
        table = np.stack(rows)
        weights = table[:, names.index("tokens")]
        columns = {name: column for name, column in zip(names, table.T, strict=True) if name not in _NOT_SHOWN}
        metrics = {
            name: column.sum() if name in counts else np.average(column, weights=weights)
            for name, column in columns.items()
        }
        speed = weights.sum() / max(time.monotonic() - since, 1e-9)
        return {name: float(metric) for name, metric in {**metrics, "tokens_per_second": speed}.items()}

    def _count_failure(self, failed: bool) -> None:
        self._failures = self._failures + 1 if failed else 0
        self.skipped += int(failed)
        if self._failures >= MOST_FAILURES:
            raise FloatingPointError(
                f"The gradients of {MOST_FAILURES} steps in a row were not finite. These steps did not change the "
                "weights. Try a lower learning rate, a longer warm-up or stronger clipping, and check the data."
            )
