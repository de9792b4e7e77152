import keras
from keras import ops

from attention_apps.layers.additive_attention import additive_scores
from attention_apps.layers.loops import scan_time
from attention_apps.layers.masks import over_targets


@keras.saving.register_keras_serializable(package="attention_apps")
class MonotonicAttention(keras.layers.Layer):
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

    def __init__(self, units, noise=1.0, offset=-1.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        if units < 1:
            raise ValueError(f"`units` must be a positive integer. Received: units={units}")
        if noise < 0:
            raise ValueError(f"`noise` must not be negative. Received: noise={noise}")
        self.units = units
        self.noise = noise
        self.offset = offset
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True
        self.autocast = False  # the alignment stays in float32 even under mixed precision
        self.query_dense = keras.layers.Dense(units, use_bias=False, dtype=self.dtype_policy, name="query")
        self.key_dense = keras.layers.Dense(units, dtype=self.dtype_policy, name="key")

    def build(self, query_shape, value_shape):
        self.query_dense.build(query_shape)
        self.key_dense.build(value_shape)
        self.score_kernel = self.add_weight(shape=(self.units,), autocast=False, name="score_kernel")
        self.score_scale = self._add_scalar(self.units**-0.5, "score_scale")
        self.score_offset = self._add_scalar(self.offset, "score_offset")

    def _add_scalar(self, value, name):
        initializer = keras.initializers.Constant(value)
        return self.add_weight(shape=(), initializer=initializer, autocast=False, name=name)

    def prepare(self, value):
        return self.key_dense(value)

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

    def get_config(self):
        config = {"units": self.units, "noise": self.noise, "offset": self.offset, "seed": self.seed}
        return {**super().get_config(), **config}


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
