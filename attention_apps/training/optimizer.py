"""AdamW with all that happens between the gradients and the weights."""

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

# Dynamic loss scaling: half after a step that overflowed, double after this many that did not.
FIRST_LOSS_SCALE = 2.0**15
LOSS_SCALE_GROWTH_STEPS = 2000


class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2), clipping and loss scaling.

    Keras' optimizers clip before the replicas' gradients are added up, and update each weight in a dozen passes over
    it; this one takes gradients that are summed already, and one fused kernel does the update. A step whose
    gradients are not finite changes nothing. Vectors (biases, the scales of normalisation) do not decay.

    Args:
        variables: the weights that learn.
        schedule: the learning rate as a function of the number of steps made.
        weight_decay: the part of a weight that each step takes away, times the learning rate.
        clip_norm: the global norm to which gradients are clipped, or `None`.
        loss_scaling: for float16, whose small gradients would vanish: they are computed of a loss times `loss_scale`.
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
        self._means = [_slot(tf.zeros(v.shape), "mean") for v in self._weights]
        self._squares = [_slot(tf.zeros(v.shape), "square") for v in self._weights]
        self.steps = _slot(tf.constant(0, tf.int64), "steps")
        self.loss_scale = _slot(tf.constant(FIRST_LOSS_SCALE if loss_scaling else 1.0), "loss_scale")
        self._steps_at_scale = _slot(tf.constant(0, tf.int64), "steps_at_scale")

    @property
    def variables(self) -> list[tf.Variable]:
        """All that a checkpoint must hold, always in the same order."""
        return [self.steps, self.loss_scale, self._steps_at_scale, *self._means, *self._squares]

    @property
    def learning_rate(self) -> tf.Tensor:
        return tf.cast(self.schedule(self.steps), tf.float32)

    def apply(self, gradients: Sequence[tf.Tensor | None], divisor: tf.Tensor) -> dict[str, tf.Tensor]:
        """Updates the weights, in a replica context.

        Args:
            gradients: one for each weight, of the scaled loss, summed over replicas; `None` leaves a weight alone.
            divisor: what to divide them by before all else, the number of tokens.

        Returns:
            `gradient_norm` before clipping, `learning_rate`, and `finite`: whether the step was made.
        """
        present = [(i, tf.convert_to_tensor(g)) for i, g in enumerate(gradients) if g is not None]
        factor = 1.0 / (divisor * self.loss_scale)
        norm = tf.linalg.global_norm([gradient for _, gradient in present]) * factor
        finite = tf.math.is_finite(norm)
        if self.clip_norm is not None:
            factor *= tf.minimum(1.0, self.clip_norm / tf.maximum(norm, 1e-12))
        factor = tf.where(finite, factor, 0.0)
        learning_rate = self.learning_rate
        # Where the factor is zero, so is the product, even of what is not a number.
        gradients = [tf.math.multiply_no_nan(gradient, factor) for _, gradient in present]
        indices = [i for i, _ in present]
        tf.distribute.get_replica_context().merge_call(self._update, args=(indices, gradients, learning_rate, finite))
        return {"gradient_norm": norm, "learning_rate": learning_rate, "finite": finite}

    def _update(self, strategy, indices, gradients, learning_rate, finite):
        step = tf.cast(self.steps, tf.float32) + 1.0
        # Without a learning rate and with betas of 1 the kernel leaves everything as it is.
        moves = _first(strategy, finite)
        rate = tf.where(moves, _first(strategy, learning_rate), 0.0)
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
            self._update_loss_scale(moves)

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

    def _update_loss_scale(self, finite):
        steps = tf.where(finite, self._steps_at_scale + 1, 0)
        grow = steps >= LOSS_SCALE_GROWTH_STEPS
        self._steps_at_scale.assign(tf.where(grow, tf.zeros_like(steps), steps))
        change = tf.where(finite, tf.where(grow, 2.0, 1.0), 0.5)
        self.loss_scale.assign(tf.maximum(self.loss_scale * change, 1.0))


def _slot(value: tf.Tensor, name: str) -> tf.Variable:
    return tf.Variable(value, trainable=False, name=name)


def _first(strategy, value):
    """A value that is equal on all replicas, of the first one here."""
    return strategy.experimental_local_results(value)[0]
