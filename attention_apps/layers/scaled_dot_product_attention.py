import math

import keras
from keras import ops

from attention_apps.layers.masks import causal_mask, masked_softmax, over_targets


@keras.saving.register_keras_serializable(package="attention_apps")
class ScaledDotProductAttention(keras.layers.Layer):
    """Scores each source position by its dot product with the query, divided by the square root of the dimension.

    It has no parameters: the value is its own key.

    Args:
        causal: Whether a target position sees only the source positions up to itself; the last one sees all.

    Call arguments:
        query: `(batch, target, dim)`.
        value: `(batch, source, dim)`.
        value_mask: Boolean `(batch, source)`; `True` means real.
        prepared: Result of `prepare(value)`, the keys `(batch, source, dim)`.
        state: Not used; returned as it is.

    Returns:
        The context `(batch, target, dim)`, the weights `(batch, target, source)` and the state.

    Example:

    >>> attention = ScaledDotProductAttention()
    >>> context, weights, _ = attention(query, value, value_mask=mask)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1, eq. 1.
    """

    def __init__(self, causal=False, **kwargs):
        super().__init__(**kwargs)
        self.causal = causal
        self.supports_masking = True

    def build(self, query_shape, value_shape):
        if query_shape[-1] != value_shape[-1]:
            raise ValueError(
                "`query` and `value` must have the same last dimension. "
                f"Received: query.shape={tuple(query_shape)}, value.shape={tuple(value_shape)}"
            )

    def prepare(self, value):
        return ops.cast(value, self.compute_dtype)

    def init_state(self, value):
        return {}

    def call(self, query, value, value_mask=None, prepared=None, state=None):
        keys = self.prepare(value) if prepared is None else prepared
        scores = ops.matmul(query / math.sqrt(query.shape[-1]), ops.swapaxes(keys, 1, 2))  # (B, T, S)
        mask = over_targets(value_mask)
        if self.causal:
            seen = causal_mask(ops.shape(query)[1], ops.shape(value)[1])  # (T, S)
            mask = seen if mask is None else ops.logical_and(mask, seen)
        weights = masked_softmax(scores, mask)
        return ops.matmul(weights, value), weights, {} if state is None else state

    def get_config(self):
        return {**super().get_config(), "causal": self.causal}
