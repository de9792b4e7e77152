"""Training on several devices or machines: what the loop needs from `tf.distribute`.

Every replica computes the gradients of its part of each batch. All replicas apply the same sum, so their weights stay
equal. All workers run the same loop and must make the same decisions, so the chief decides whatever depends on a clock.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


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


def sum_over_replicas(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """Sum tensors over all replicas, in a replica context."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return tensors
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)


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
