"""Averages of weights: over the steps of a run, and over its checkpoints."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf


class MovingAverage:
    """An exponential moving average of weights, in variables of its own.

    The decay rises as (1 + t) / (10 + t) up to `decay`, so that the random first weights are soon forgotten.
    """

    def __init__(self, variables: Sequence[keras.Variable], decay: float):
        self.decay = decay
        self._weights = [variable.value for variable in variables]
        self.variables = [tf.Variable(v.read_value(), trainable=False, name="average") for v in self._weights]

    def update(self, step: tf.Tensor, moved: tf.Tensor) -> None:
        """Goes a little towards the weights, in a replica context.

        Args:
            step: how many updates there were.
            moved: whether the weights changed in this step; if not, neither does the average.
        """
        step = tf.cast(step, tf.float32)
        rate = 1.0 - tf.minimum(self.decay, (1.0 + step) / (10.0 + step))
        rate = tf.where(moved, rate, 0.0)
        tf.distribute.get_replica_context().merge_call(self._update, args=(rate,))

    def _update(self, strategy, rate):
        for average, weight in zip(self.variables, self._weights, strict=True):
            strategy.extended.update(average, _approach, args=(weight, rate), group=False)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """The weights are the averages within this context."""
        kept = [weight.numpy() for weight in self._weights]
        for weight, average in zip(self._weights, self.variables, strict=True):
            weight.assign(average.numpy())
        try:
            yield
        finally:
            for weight, value in zip(self._weights, kept, strict=True):
                weight.assign(value)


def average_arrays(checkpoints: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The mean of each floating-point array over several checkpoints; of other arrays, the first checkpoint's."""
    first = checkpoints[0]
    averaged = {}
    for name, array in first.items():
        if np.issubdtype(array.dtype, np.floating):
            total = sum(checkpoint[name].astype(np.float64) for checkpoint in checkpoints)
            averaged[name] = (total / len(checkpoints)).astype(array.dtype)
        else:
            averaged[name] = array
    return averaged


def _approach(average, weight, rate):
    tf.raw_ops.ResourceApplyGradientDescent(var=average.handle, alpha=rate, delta=average - weight)
