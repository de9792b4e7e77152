"""From gradients to weights: AdamW, the learning rate schedule, and averages of weights."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from attention_apps.checks import require

SCHEDULES = ("constant", "linear", "cosine", "inverse_sqrt")
# Dynamic loss scaling: halved after an overflow, doubled after this many steps without one.
FIRST_LOSS_SCALE = 2.0**15
LOSS_SCALE_GROWTH_STEPS = 2000


class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2), clipping and loss scaling.

    Why not `keras.optimizers.AdamW`: it clips gradients before they are summed over replicas and accumulated batches,
    needs `LossScaleOptimizer` around it for float16, does not skip a non-finite step in float32, and updates a weight
    in about a dozen operations. This class takes summed gradients, updates with one fused kernel, and leaves all
    weights and slots unchanged if the gradients are not finite. A test compares its steps with those of Keras.
    Vectors (biases, normalization scales) are not decayed.

    Args:
        variables: the trainable variables.
        schedule: the learning rate as a function of the number of steps taken.
        weight_decay: the fraction by which each step shrinks a weight, times the learning rate.
        clip_norm: the global norm to which gradients are clipped, or `None`.
        loss_scaling: multiplies the loss by `loss_scale`, so that small float16 gradients do not underflow.
    """

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        schedule: Callable,
        weight_decay: float = 0.0,
        clip_norm: float | None = None,
        loss_scaling: bool = False,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
    ):
        self.schedule = schedule
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.loss_scaling = loss_scaling
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self._weights = [variable.value for variable in variables]
        slot = partial(tf.Variable, trainable=False)
        self._means = [slot(tf.zeros(v.shape), name="mean") for v in self._weights]
        self._squares = [slot(tf.zeros(v.shape), name="square") for v in self._weights]
        self.steps = slot(tf.constant(0, tf.int64), name="steps")
        self.loss_scale = slot(tf.constant(FIRST_LOSS_SCALE if loss_scaling else 1.0), name="loss_scale")
        self._steps_at_scale = slot(tf.constant(0, tf.int64), name="steps_at_scale")
        # Everything a checkpoint must hold, always in the same order.
        self.variables = [self.steps, self.loss_scale, self._steps_at_scale, *self._means, *self._squares]

    def apply(self, gradients: Sequence[tf.Tensor | None], divisor: tf.Tensor) -> dict[str, tf.Tensor]:
        """Update the weights, in a replica context.

        Args:
            gradients: the gradient of the scaled loss for each weight, summed over replicas. A weight whose gradient
                is `None` is not changed.
            divisor: the number of tokens, by which the gradients are divided first.

        Returns:
            `gradient_norm` before clipping, `learning_rate`, and `finite`: whether the weights were updated.
        """
        present = [(i, tf.convert_to_tensor(g)) for i, g in enumerate(gradients) if g is not None]
        factor = 1.0 / (divisor * self.loss_scale)
        norm = tf.linalg.global_norm([gradient for _, gradient in present]) * factor
        finite = tf.math.is_finite(norm)
        if self.clip_norm is not None:
            factor *= tf.minimum(1.0, self.clip_norm / tf.maximum(norm, 1e-12))
        factor = tf.where(finite, factor, 0.0)
        learning_rate = tf.cast(self.schedule(self.steps), tf.float32)
        # A factor of zero gives zero even for gradients that are not a number.
        gradients = [tf.math.multiply_no_nan(gradient, factor) for _, gradient in present]
        indices = [i for i, _ in present]
        tf.distribute.get_replica_context().merge_call(self._update, args=(indices, gradients, learning_rate, finite))
        return {"gradient_norm": norm, "learning_rate": learning_rate, "finite": finite}

    def _update(self, strategy, indices, gradients, learning_rate, finite):
        step = tf.cast(self.steps, tf.float32) + 1.0
        # These are equal on all replicas. With a learning rate of 0 and betas of 1 the kernel changes nothing.
        moves, rate = (strategy.experimental_local_results(value)[0] for value in (finite, learning_rate))
        rate = tf.where(moves, rate, 0.0)
        beta_1, beta_2 = (tf.where(moves, beta, 1.0) for beta in (self.beta_1, self.beta_2))
        powers = self.beta_1**step, self.beta_2**step
        for i, gradient in zip(indices, gradients, strict=True):
            decay = rate * self.weight_decay if len(self._weights[i].shape) > 1 else None
            strategy.extended.update(
                self._weights[i],
                self._update_one,
                args=(self._means[i], self._squares[i], gradient, rate, (beta_1, beta_2), powers, decay),
                group=False,
            )
        self.steps.assign_add(tf.cast(moves, tf.int64))
        if self.loss_scaling:
            steps = tf.where(moves, self._steps_at_scale + 1, 0)
            grow = steps >= LOSS_SCALE_GROWTH_STEPS
            self._steps_at_scale.assign(tf.where(grow, tf.zeros_like(steps), steps))
            change = tf.where(moves, tf.where(grow, 2.0, 1.0), 0.5)
            self.loss_scale.assign(tf.maximum(self.loss_scale * change, 1.0))

    def _update_one(self, weight, mean, square, gradient, rate, betas, powers, decay):
        if self.weight_decay and decay is not None:
            weight.assign_sub(weight * decay)
        tf.raw_ops.ResourceApplyAdam(
            var=weight.handle,
            m=mean.handle,
            v=square.handle,
            beta1_power=powers[0],
            beta2_power=powers[1],
            lr=rate,
            beta1=betas[0],
            beta2=betas[1],
            epsilon=self.epsilon,
            grad=gradient,
        )


@keras.saving.register_keras_serializable(package="attention_apps")
class WarmUpSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A linear warm-up to `peak`, then a constant or decaying learning rate.

    - `"constant"`: stays at the peak;
    - `"linear"`, `"cosine"`: decays to `final_fraction` of the peak at `total_steps`, linearly or along half a cosine
      (Loshchilov and Hutter 2017, equation 5), and stays there;
    - `"inverse_sqrt"`: decays with the inverse square root of the step (Vaswani et al. 2017, equation 3).

    Steps count from 0, and the warm-up factor of step t is (t + 1) / `warmup_steps`. Why not the schedules of Keras:
    only `CosineDecay` has a warm-up, its first step has a learning rate of 0, and there is no inverse square root.

    Args:
        peak: the highest learning rate.
        warmup_steps: the length of the warm-up; 0 for none.
        kind: one of the four above.
        total_steps: where `"linear"` and `"cosine"` end.
        final_fraction: the final learning rate as a fraction of the peak.
    """

    def __init__(
        self,
        peak: float,
        warmup_steps: int = 0,
        kind: str = "constant",
        total_steps: int | None = None,
        final_fraction: float = 0.0,
    ):
        require(kind in SCHEDULES, "kind", f"one of {', '.join(SCHEDULES)}", kind)
        if kind in ("linear", "cosine") and (total_steps is None or total_steps < 1):
            raise ValueError(f"`total_steps` must be given for a {kind} schedule. Received: total_steps={total_steps}")
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.kind = kind
        self.total_steps = total_steps
        self.final_fraction = final_fraction

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32")
        warmed_up = ops.minimum(1.0, (step + 1.0) / max(self.warmup_steps, 1))
        if self.kind == "constant":
            decay = 1.0
        elif self.kind == "inverse_sqrt":
            start = float(max(self.warmup_steps, 1))
            decay = ops.sqrt(start / ops.maximum(step + 1.0, start))
        else:
            progress = (step - self.warmup_steps) / max((self.total_steps or 0) - self.warmup_steps, 1)
            progress = ops.clip(progress, 0.0, 1.0)
            left = 1.0 - progress if self.kind == "linear" else 0.5 * (1.0 + ops.cos(math.pi * progress))
            decay = self.final_fraction + (1.0 - self.final_fraction) * left
        return self.peak * warmed_up * decay

    def get_config(self) -> dict[str, Any]:
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "kind": self.kind,
            "total_steps": self.total_steps,
            "final_fraction": self.final_fraction,
        }


class MovingAverage:
    """An exponential moving average of weights, in separate variables.

    The decay grows as (1 + t) / (10 + t) up to `decay`, so that the random initial weights are soon forgotten.
    """

    def __init__(self, variables: Sequence[keras.Variable], decay: float):
        self.decay = decay
        self._weights = [variable.value for variable in variables]
        self.variables = [tf.Variable(v.read_value(), trainable=False, name="average") for v in self._weights]

    def update(self, step: tf.Tensor, moved: tf.Tensor) -> None:
        """Move the average towards the weights, in a replica context.

        Args:
            step: the number of updates so far.
            moved: whether this step changed the weights. If not, the average stays unchanged too.
        """
        step = tf.cast(step, tf.float32)
        rate = 1.0 - tf.minimum(self.decay, (1.0 + step) / (10.0 + step))
        rate = tf.where(moved, rate, 0.0)

        def approach(average, weight, rate):
            tf.raw_ops.ResourceApplyGradientDescent(var=average.handle, alpha=rate, delta=average - weight)

        def update_all(strategy, rate):
            for average, weight in zip(self.variables, self._weights, strict=True):
                strategy.extended.update(average, approach, args=(weight, rate), group=False)

        tf.distribute.get_replica_context().merge_call(update_all, args=(rate,))

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Use the averages as the model's weights within this context."""
        kept = [weight.numpy() for weight in self._weights]
        for weight, average in zip(self._weights, self.variables, strict=True):
            weight.assign(average.numpy())
        try:
            yield
        finally:
            for weight, value in zip(self._weights, kept, strict=True):
                weight.assign(value)


def average_arrays(checkpoints: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Average the floating-point arrays of several checkpoints. Other arrays come from the first checkpoint."""
    first = checkpoints[0]
    averaged = {}
    for name, array in first.items():
        if np.issubdtype(array.dtype, np.floating):
            total = sum(checkpoint[name].astype(np.float64) for checkpoint in checkpoints)
            averaged[name] = np.asarray(total / len(checkpoints)).astype(array.dtype)
        else:
            averaged[name] = array
    return averaged
