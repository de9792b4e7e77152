"""Training on several devices or machines at once: the few things that the loop must know about `tf.distribute`.

Every replica computes the gradients of its part of each batch; their sums are the same everywhere, and so the weights
stay equal. All workers run the same loop and must take the same decisions: what depends on a clock, the chief decides.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def find_strategy() -> tf.distribute.Strategy:
    """How to distribute training on what this process has.

    Several workers where `TF_CONFIG` names them (to be called before TensorFlow has computed anything), all GPUs where
    there are several, and otherwise no distribution. Build the model and its trainer within `strategy.scope()`.
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
    """The numbers of this process's replicas among all of them."""
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
    """Calls `function(part)` on each replica of this process with its part; within a graph."""
    if strategy.num_replicas_in_sync == 1:
        return (function(parts[0]),)

    def run():
        number = tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group)
        return function(parts[number % len(parts)])

    return strategy.experimental_local_results(strategy.run(run))


def sum_over_replicas(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """The sums of equal-shaped tensors of all replicas, in a replica context."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return tensors
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)


def chief_value(strategy: tf.distribute.Strategy, value: float) -> float:
    """The chief's value, on all workers, which must all ask for it."""
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
