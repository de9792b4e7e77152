"""Attention to one source position at a time: drawn from other weights, or found by moving along the source."""

import keras
from keras import ops

from attention_apps.constants import VERY_NEGATIVE
from attention_apps.layers.additive_attention import AdditiveAttention, additive_scores, takes_single_step
from attention_apps.layers.constructor_config import ConstructorConfig
from attention_apps.layers.sequence_ops import masked_softmax, over_targets, scan_time

_ESTIMATORS = ("reinforce", "gumbel", "straight_through")


@keras.saving.register_keras_serializable(package="attention_apps")
class HardAttention(ConstructorConfig, keras.layers.Layer):
    """Attends to one source position at a time, drawn from the weights of another attention layer.

    In training, the position is sampled from the weights of the wrapped layer; at inference, it is the most likely
    one. The context is the value at that position. Three estimators make the choice trainable:

    - `reinforce`: the state collects the log-probability of the sampled positions and the entropy of the weights.
      `estimator_loss` turns them into a loss to add to the cross-entropy, with a moving baseline. At random positions
      the soft weights replace the sample, which lowers the variance.
    - `gumbel`: straight-through Gumbel-softmax. The gradient is that of a softmax of noisy log-weights; there is no
      additional loss.
    - `straight_through`: the most likely position in training, too, with the gradient of the soft weights. Nothing is
      random, so training sees the same contexts as inference.

    The state of the wrapped layer (coverage, previous weights) follows its soft weights, not the chosen positions: it
    has far less noise, and all target positions can still be computed in one call. Weights that sum to less than one,
    like those of `MonotonicAttention`, are sampled in proportion.

    Args:
        attention: The attention layer to wrap, built or not.
        estimator: `"reinforce"`, `"gumbel"` or `"straight_through"`.
        expectation_rate: Probability that `reinforce` uses the soft weights instead of a sample, drawn for each row
            and target position. Such positions add nothing to the log-probability.
        reward_weight: λr, the factor of the reward in `estimator_loss`.
        entropy_weight: λe, the factor of the entropy in `estimator_loss`.
        baseline_momentum: Momentum of the baseline that `estimator_loss` updates.
        temperature: Temperature of the Gumbel-softmax.
        seed: Integer for the random numbers, or `None`.

    Call arguments:
        query: `(batch, target, query_dim)`.
        value: `(batch, source, dim)`.
        value_mask: Boolean `(batch, source)`; `True` means real.
        prepared: Result of `prepare(value)`, that of the wrapped layer.
        state: `{"inner": state of the wrapped layer}` if it has one; with `reinforce` also `"log_prob"` and
            `"entropy"`, each `(batch,)`, summed over the target positions in training.
        training: Whether to sample.
        single_step: Passed on to the wrapped layer if it takes it; see `AdditiveAttention`.

    Returns:
        The context `(batch, target, dim)`, the weights it was computed with `(batch, target, source)`, and the state
        after the last target position.

    Example:

    >>> attention = HardAttention(AdditiveAttention(256))
    >>> context, weights, state = attention(query, value, value_mask=mask, training=True)
    >>> loss = -log_likelihood + attention.estimator_loss(log_likelihood, state)

    References:
        Xu et al. 2015, "Show, Attend and Tell", section 4.1; Jang et al. 2017, "Categorical Reparameterization with
        Gumbel-Softmax", section 2.2; Bengio et al. 2013, "Estimating or Propagating Gradients Through Stochastic
        Neurons", section 4.
    """

    def __init__(
        self,
        attention,
        estimator="reinforce",
        expectation_rate=0.5,
        reward_weight=1.0,
        entropy_weight=0.002,
        baseline_momentum=0.9,
        temperature=1.0,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if not (hasattr(attention, "prepare") and getattr(attention, "return_weights", True)):
            raise TypeError(f"`attention` must be an attention layer that returns weights. Received: {attention=}")
        if estimator not in _ESTIMATORS:
            raise ValueError(f"`estimator` must be one of {_ESTIMATORS}. Received: {estimator=}")
        for name, rate in (("expectation_rate", expectation_rate), ("baseline_momentum", baseline_momentum)):
            if not 0 <= rate <= 1:
                raise ValueError(f"`{name}` must be between 0 and 1. Received: {name}={rate}")
        if temperature <= 0:
            raise ValueError(f"`temperature` must be positive. Received: temperature={temperature}")
        self.attention = attention
        self.estimator = estimator
        self.expectation_rate = expectation_rate
        self.reward_weight = reward_weight
        self.entropy_weight = entropy_weight
        self.baseline_momentum = baseline_momentum
        self.temperature = temperature
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True
        self.autocast = False  # the state stays in float32 even under mixed precision

    def build(self, query_shape, value_shape):
        if not self.attention.built:
            self.attention.build(query_shape, value_shape)
        if self.estimator == "reinforce":
            self.baseline = self.add_weight(
                shape=(), initializer="zeros", trainable=False, autocast=False, aggregation="mean", name="baseline"
            )

    def prepare(self, value):
        return self.attention.prepare(value)

    def init_state(self, value):
        inner = self.attention.init_state(value)
        if self.estimator == "reinforce":
            zeros = ops.zeros_like(value[:, 0, 0], dtype=self.variable_dtype)
            return {"inner": inner, "log_prob": zeros, "entropy": zeros}
        return {"inner": inner} if inner else {}

    def call(self, query, value, value_mask=None, prepared=None, state=None, training=None, single_step=False):
        state = self.init_state(value) if state is None else state
        options = {"single_step": True} if single_step and takes_single_step(self.attention) else {}
        _, soft, inner = self.attention(
            query, value, value_mask=value_mask, prepared=prepared, state=state.get("inner"), **options
        )
        # Weights may sum to less than one; rows of zeros stay zero.
        soft = ops.cast(soft, self.variable_dtype)
        total = ops.sum(soft, axis=-1, keepdims=True)
        probabilities = soft / ops.where(total > 0, total, ops.ones_like(total))  # (B, T, S)
        state = {**state, "inner": inner} if state else {}
        if not training:
            weights = _one_hot_of_largest(probabilities, probabilities > 0)
        elif self.estimator == "reinforce":
            weights, state = self._sampled_weights(probabilities, state)
        else:  # one-hot weights of the largest score in the forward pass, with the gradient of the soft weights
            soft, scores = probabilities, probabilities
            if self.estimator == "gumbel":
                _, scores = self._logits_and_noisy_logits(probabilities)
                soft = masked_softmax(scores / self.temperature, probabilities > 0)
            weights = _one_hot_of_largest(scores, soft > 0) + (soft - ops.stop_gradient(soft))
        weights = ops.cast(weights, self.compute_dtype)
        return ops.matmul(weights, ops.cast(value, self.compute_dtype)), weights, state

    def estimator_loss(self, log_likelihood, state, training=True, row_mask=None):
        """The loss of the `reinforce` estimator for each row, `(batch,)`, to add to the cross-entropy.

        It also moves the baseline toward the mean log-likelihood. For the other estimators it is zero.

        Args:
            log_likelihood: `(batch,)`, log p(target | sampled positions) of the whole sequence.
            state: The state after the last target position.
            training: Whether to update the baseline.
            row_mask: Boolean `(batch,)`; `False` excludes a row from the baseline.
        """
        log_likelihood = ops.stop_gradient(ops.cast(log_likelihood, self.variable_dtype))
        if self.estimator != "reinforce":
            return ops.zeros_like(log_likelihood)
        baseline = ops.convert_to_tensor(self.baseline)
        reward = self.reward_weight * (log_likelihood - baseline)
        if training:
            counted = ops.ones_like(log_likelihood) if row_mask is None else ops.cast(row_mask, log_likelihood.dtype)
            count = ops.sum(counted)
            mean = ops.where(count > 0, ops.sum(log_likelihood * counted) / ops.maximum(count, 1), baseline)
            self.baseline.assign(self.baseline_momentum * baseline + (1 - self.baseline_momentum) * mean)
        return -(reward * state["log_prob"] + self.entropy_weight * state["entropy"])

    def _sampled_weights(self, probabilities, state):
        real = probabilities > 0
        logits, noisy_logits = self._logits_and_noisy_logits(probabilities)
        sample = _one_hot_of_largest(noisy_logits, real)  # (B, T, S)
        uniform = keras.random.uniform(ops.shape(logits)[:2], dtype=self.variable_dtype, seed=self.seed_generator)
        sampled = ops.expand_dims(uniform >= self.expectation_rate, 2)  # (B, T, 1)
        log_prob = ops.where(sampled, sample * logits, ops.zeros_like(logits))
        state = {
            **state,
            "log_prob": state["log_prob"] + ops.sum(log_prob, axis=(1, 2)),
            "entropy": state["entropy"] - ops.sum(probabilities * logits, axis=(1, 2)),
        }
        return ops.where(sampled, sample, probabilities), state

    def _logits_and_noisy_logits(self, probabilities):
        """Return the logarithm, zero with a zero gradient for a probability of zero, and its sum with Gumbel noise."""
        logits = ops.log(ops.where(probabilities > 0, probabilities, ops.ones_like(probabilities)))
        uniform = keras.random.uniform(
            ops.shape(logits), minval=1e-9, dtype=self.variable_dtype, seed=self.seed_generator
        )
        return logits, logits - ops.log(-ops.log(uniform))


def _one_hot_of_largest(scores, real):
    """One at the largest score among the real positions, else zero; all zero if none is real. Has no gradient."""
    scores = ops.where(real, scores, ops.cast(VERY_NEGATIVE, scores.dtype))
    best = ops.cast(ops.expand_dims(ops.argmax(scores, axis=-1), -1), "int32")
    positions = ops.arange(ops.shape(scores)[-1], dtype="int32")
    return ops.cast(ops.logical_and(ops.equal(positions, best), real), scores.dtype)


@keras.saving.register_keras_serializable(package="attention_apps")
class MonotonicAttention(AdditiveAttention):
    """Attention that moves over the source in one direction: at each position it either stops or moves right.

    The energy of stopping is g · v/|v| · tanh(W q + V k + b) + r, and p is its sigmoid. At inference, attention is
    hard: starting from the previous position, all weight goes to the first source position with p > 0.5. If there is
    none, weights and context are zero and the position stays. In training, the weights are the expectation of that
    process, p[i, j] · q[i, j] with q[i, j] = (1 - p[i, j - 1]) · q[i, j - 1] + weights[i - 1, j]. They may sum to less
    than one. Noise added to the energies teaches the layer to make p nearly 0 or 1.

    Args:
        units: Size of the hidden layer.
        noise: Standard deviation of the noise added to the energies in training.
        offset: Initial value of r; the more negative, the further the initial alignments reach.
        seed: Integer for the noise, or `None`.

    Call arguments:
        query: `(batch, target, query_dim)`.
        value: `(batch, source, dim)`.
        value_mask: Boolean `(batch, source)`; `True` means real.
        prepared: Result of `prepare(value)`, the projected keys `(batch, source, units)`.
        state: `{"weights": (batch, source)}`, the last alignment; initially, all weight is on position 0.
        training: Whether to use the soft, expected weights.

    Returns:
        The context `(batch, target, dim)`, the weights `(batch, target, source)` and the state after the last
        target position.

    Example:

    >>> attention = MonotonicAttention(256)
    >>> context, weights, state = attention(query, value, value_mask=mask, training=True)

    Reference:
        Raffel et al. 2017, "Online and Linear-Time Attention by Enforcing Monotonic Alignments", sections 2.2 to 2.5,
        eq. 9-14 and algorithm 1.
    """

    _key_bias = True

    def __init__(self, units, noise=1.0, offset=-1.0, seed=None, **kwargs):
        seed_generator = keras.random.SeedGenerator(seed)  # before the weights, whose random seeds come after its own
        super().__init__(units, **kwargs)
        if noise < 0:
            raise ValueError(f"`noise` must not be negative. Received: noise={noise}")
        self.noise = noise
        self.offset = offset
        self.seed = seed
        self.seed_generator = seed_generator
        self.autocast = False  # the alignment stays in float32 even under mixed precision

    def build(self, query_shape, value_shape):
        self.query_dense.build(query_shape)
        self.key_dense.build(value_shape)
        self.score_kernel = self.add_weight(shape=(self.units,), autocast=False, name="score_kernel")
        self.score_scale, self.score_offset = (
            self.add_weight(shape=(), initializer=keras.initializers.Constant(value), autocast=False, name=name)
            for name, value in (("score_scale", self.units**-0.5), ("score_offset", self.offset))
        )

    def init_state(self, value):
        zeros = ops.zeros_like(value[:, :, 0], dtype=self.variable_dtype)
        first = ops.equal(ops.arange(ops.shape(zeros)[1]), 0)
        return {"weights": ops.where(first, ops.ones_like(zeros), zeros)}

    def call(self, query, value, value_mask=None, prepared=None, state=None, training=None):
        keys = self.prepare(value) if prepared is None else prepared  # (B, S, U)
        state = self.init_state(value) if state is None else state
        kernel = self.score_scale * self.score_kernel / ops.norm(self.score_kernel)
        scores = additive_scores(self.query_dense(query), keys, ops.cast(kernel, self.compute_dtype))  # (B, T, S)
        energies = ops.cast(scores, self.variable_dtype) + self.score_offset
        if training:
            noise = keras.random.normal(ops.shape(energies), dtype=self.variable_dtype, seed=self.seed_generator)
            step, probabilities = _soft_step, ops.sigmoid(energies + self.noise * noise)
        else:
            step, probabilities = _hard_step, ops.cast(energies > 0, self.variable_dtype)
        if value_mask is not None:
            probabilities = ops.where(over_targets(value_mask), probabilities, ops.zeros_like(probabilities))
        weights, state = scan_time(step, probabilities, state)
        weights = ops.cast(weights, self.compute_dtype)
        return ops.matmul(weights, ops.cast(value, self.compute_dtype)), weights, state


def _soft_step(probabilities, state):
    """The expected alignment of one target position, eq. 13 and 14."""
    decay = ops.pad(1 - probabilities[:, :-1], ((0, 0), (1, 0)))
    weights = probabilities * linear_recurrence(decay, state["weights"])
    return weights, {"weights": weights}


def _hard_step(stops, state):
    """The alignment of one target position, algorithm 1; `stops` is 1 where the layer would stop, else 0."""
    reachable = ops.where(ops.cumsum(state["weights"], axis=1) > 0, stops, ops.zeros_like(stops))
    weights = ops.where(ops.cumsum(reachable, axis=1) <= 1, reachable, ops.zeros_like(stops))
    found = ops.any(reachable > 0, axis=1, keepdims=True)
    return weights, {"weights": ops.where(found, weights, state["weights"])}


@ops.custom_gradient
def linear_recurrence(decay, inputs):
    """Compute x[j] = decay[j] · x[j - 1] + inputs[j] with x[-1] = 0, in a logarithmic number of parallel steps.

    It uses sums of products, never a quotient of cumulative products: with decays between 0 and 1 nothing overflows,
    no matter how long the axis is. The gradient is the same kind of recurrence, run backward.

    Args:
        decay: `(batch, length)`.
        inputs: `(batch, length)`.
    """
    outputs = _parallel_scan(decay, inputs)

    def gradient(*arguments, upstream=None):
        upstream = arguments[0] if upstream is None else upstream
        following = ops.pad(decay[:, 1:], ((0, 0), (0, 1)))
        input_gradient = ops.flip(_parallel_scan(ops.flip(following, axis=1), ops.flip(upstream, axis=1)), axis=1)
        return input_gradient * ops.pad(outputs[:, :-1], ((0, 0), (1, 0))), input_gradient

    return outputs, gradient


def _parallel_scan(decay, inputs):
    """Each iteration doubles the length of the segments: `decay` across a segment, `outputs` of its own inputs."""
    length = ops.shape(inputs)[1]
    positions = ops.arange(length, dtype="int32")

    def join(span, decay, outputs):
        inside = positions >= span
        before = ops.maximum(positions - span, 0)
        joined = outputs + ops.where(inside, decay * ops.take(outputs, before, axis=1), 0)
        return span * 2, ops.where(inside, decay * ops.take(decay, before, axis=1), 0), joined

    first = (ops.ones((), dtype="int32"), decay, inputs)
    return ops.while_loop(lambda span, *_: span < length, join, first)[2]
