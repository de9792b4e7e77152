"""Attention that depends on where it looked before: coverage and location-sensitive attention."""

import keras
from keras import ops

from attention_apps.constants import VERY_NEGATIVE
from attention_apps.layers.additive_attention import AdditiveAttention
from attention_apps.layers.recurrent_attention import recurrent_attention_weights, unroll_filters
from attention_apps.layers.sequence_ops import masked_softmax, softmax_gradient


@keras.saving.register_keras_serializable(package="attention_apps")
class CoverageAttention(AdditiveAttention):
    """Additive attention that sees how much attention each source position has received so far.

    The coverage c of a source position is the sum of its weights at all earlier target positions. The score is
    v · tanh(W k + U q + w c + b). Together with `coverage_loss`, this keeps a decoder from repeating itself.

    Args:
        units: Size of the hidden layer.

    Call arguments:
        query: `(batch, target, query_dim)`.
        value: `(batch, source, dim)`.
        value_mask: Boolean `(batch, source)`; `True` means real.
        prepared: Result of `prepare(value)`, the projected keys `(batch, source, units)`.
        state: `{"coverage": (batch, source)}`, initially zero.

    Returns:
        The context `(batch, target, dim)`, the weights `(batch, target, source)` and the state after the last
        target position.

    Example:

    >>> attention = CoverageAttention(256)
    >>> context, weights, state = attention(query, value, value_mask=mask)
    >>> repetition = coverage_loss(weights)

    Reference:
        See et al. 2017, "Get To The Point: Summarization with Pointer-Generator Networks", section 2.3, eq. 10-13.
    """

    _key_bias = True

    def __init__(self, units, **kwargs):
        super().__init__(units, **kwargs)
        self.autocast = False  # coverage is summed in float32 even under mixed precision

    def build(self, query_shape, value_shape):
        self.coverage_kernel = self.add_weight(shape=(1, self.units), name="coverage_kernel")
        super().build(query_shape, value_shape)

    def init_state(self, value):
        return {"coverage": ops.zeros_like(value[:, :, 0], dtype=self.variable_dtype)}

    def call(self, query, value, value_mask=None, prepared=None, state=None):
        keys = self.prepare(value) if prepared is None else prepared  # (B, S, U)
        state = self.init_state(value) if state is None else state
        weights = recurrent_attention_weights(
            self.query_dense(query),
            keys,
            state["coverage"],
            value_mask,
            None,
            self.coverage_kernel,
            self.score_kernel,
            lambda scores, coverage, mask: masked_softmax(scores, mask),
            lambda scores, weights, upstream: softmax_gradient(weights, upstream),
            adds_up=True,
        )
        state = {"coverage": state["coverage"] + ops.sum(weights, axis=1)}
        weights = ops.cast(weights, self.compute_dtype)
        return ops.matmul(weights, ops.cast(value, self.compute_dtype)), weights, state


def coverage_loss(weights, mask=None):
    """Penalize attending again to source positions that earlier target positions attended to.

    Args:
        weights: `(batch, target, source)`, the weights of all target positions in order.
        mask: Boolean `(batch, target)`; `True` means real. Other target positions have a loss of zero.

    Returns:
        The loss of each target position, `(batch, target)`.
    """
    weights = ops.cast(weights, keras.backend.result_type(weights.dtype, "float32"))
    before = ops.pad(weights[:, :-1], ((0, 0), (1, 0), (0, 0)))
    losses = ops.sum(ops.minimum(weights, ops.cumsum(before, axis=1)), axis=2)
    return losses if mask is None else ops.where(mask, losses, ops.zeros_like(losses))


@keras.saving.register_keras_serializable(package="attention_apps")
class LocationSensitiveAttention(AdditiveAttention):
    """Additive attention that sees the weights of the previous target position.

    The previous weights are convolved along the source into features f, and the score is v · tanh(W q + V k + U f + b).
    The softmax can be made narrower (an inverse temperature, the best `top_k` positions, a `window` around the median
    of the previous weights) or broader (`smoothing`).

    Args:
        units: Size of the hidden layer.
        filters: Number of features f of each source position.
        kernel_size: Number of source positions that a filter spans.
        inverse_temperature: Factor of the scores before the softmax; a value above 1 sharpens.
        top_k: Only the positions with the `top_k` best scores get weight; `None` means all.
        window: Only positions from `window` before the median of the previous weights to `window - 1` after it get
            weight; the first window starts at position 0. `None` means all.
        smoothing: Whether to normalize sigmoids instead of exponentials, which spreads the weight more.

    Call arguments:
        query: `(batch, target, query_dim)`.
        value: `(batch, source, dim)`.
        value_mask: Boolean `(batch, source)`; `True` means real.
        prepared: Result of `prepare(value)`, the projected keys `(batch, source, units)`.
        state: `{"weights": (batch, source)}`, the weights of the previous target position, initially zero.

    Returns:
        The context `(batch, target, dim)`, the weights `(batch, target, source)` and the state after the last
        target position.

    Example:

    >>> attention = LocationSensitiveAttention(256, inverse_temperature=2.0)
    >>> context, weights, state = attention(query, value, value_mask=mask)

    Reference:
        Chorowski et al. 2015, "Attention-Based Models for Speech Recognition", sections 2.1 to 2.3.
    """

    _key_bias = True

    def __init__(
        self,
        units,
        filters=10,
        kernel_size=201,
        inverse_temperature=1.0,
        top_k=None,
        window=None,
        smoothing=False,
        **kwargs,
    ):
        super().__init__(units, **kwargs)
        sizes = {"filters": filters, "kernel_size": kernel_size, "top_k": top_k, "window": window}
        for name, size in sizes.items():
            if size is not None and size < 1:
                raise ValueError(f"`{name}` must be a positive integer. Received: {name}={size}")
        if inverse_temperature <= 0:
            raise ValueError(
                f"`inverse_temperature` must be positive. Received: inverse_temperature={inverse_temperature}"
            )
        self.filters = filters
        self.kernel_size = kernel_size
        self.inverse_temperature = inverse_temperature
        self.top_k = top_k
        self.window = window
        self.smoothing = smoothing
        self.autocast = False  # the state stays in float32 even under mixed precision

    def build(self, query_shape, value_shape):
        self.location_filters = self.add_weight(shape=(self.kernel_size, self.filters), name="location_filters")
        self.location_kernel = self.add_weight(shape=(self.filters, self.units), name="location_kernel")
        super().build(query_shape, value_shape)

    def init_state(self, value):
        return {"weights": ops.zeros_like(value[:, :, 0], dtype=self.variable_dtype)}

    def call(self, query, value, value_mask=None, prepared=None, state=None):
        keys = self.prepare(value) if prepared is None else prepared  # (B, S, U)
        state = self.init_state(value) if state is None else state
        filters = unroll_filters(ops.cast(self.location_filters, self.compute_dtype))
        weights = recurrent_attention_weights(
            self.query_dense(query),
            keys,
            state["weights"],
            value_mask,
            filters,
            self.location_kernel,
            self.score_kernel,
            self._normalize,
            self._normalize_gradient,
        )
        state = {"weights": weights[:, -1]}
        weights = ops.cast(weights, self.compute_dtype)
        return ops.matmul(weights, ops.cast(value, self.compute_dtype)), weights, state

    def _normalize(self, scores, previous, mask):
        scores = scores * self.inverse_temperature
        if self.window is not None:  # from `window` positions before the median of the weights to `window - 1` after
            cumulative = ops.cumsum(previous, axis=-1)
            median = ops.sum(ops.cast(cumulative < cumulative[:, -1:] / 2, "int32"), axis=-1, keepdims=True)  # (B, 1)
            offset = ops.expand_dims(ops.arange(ops.shape(previous)[-1], dtype="int32"), 0) - median
            mask = ops.logical_and(mask, ops.logical_and(offset >= -self.window, offset < self.window))
        if self.top_k is not None:  # the largest scores, and scores equal to the smallest of these
            masked = ops.where(mask, scores, VERY_NEGATIVE)
            descending = ops.flip(ops.sort(masked, axis=-1), axis=-1)
            mask = ops.logical_and(mask, masked >= descending[:, : self.top_k][:, -1:])
        if not self.smoothing:
            return masked_softmax(scores, mask)
        weights = ops.where(mask, ops.sigmoid(scores), ops.zeros_like(scores))
        total = ops.sum(weights, axis=-1, keepdims=True)
        return weights / ops.where(total > 0, total, ops.ones_like(total))

    def _normalize_gradient(self, scores, weights, upstream):
        gradient = softmax_gradient(weights, upstream)
        if self.smoothing:  # the log of a sigmoid instead of the score itself
            gradient = gradient * ops.sigmoid(-scores * self.inverse_temperature)
        return gradient * self.inverse_temperature
