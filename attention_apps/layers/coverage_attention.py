import keras
from keras import ops

from attention_apps.layers.masks import masked_softmax, softmax_gradient
from attention_apps.layers.recurrent_attention import recurrent_attention_weights


@keras.saving.register_keras_serializable(package="attention_apps")
class CoverageAttention(keras.layers.Layer):
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

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        if units < 1:
            raise ValueError(f"`units` must be a positive integer. Received: units={units}")
        self.units = units
        self.supports_masking = True
        self.autocast = False  # coverage is summed in float32 even under mixed precision
        self.query_dense = keras.layers.Dense(units, use_bias=False, dtype=self.dtype_policy, name="query")
        self.key_dense = keras.layers.Dense(units, dtype=self.dtype_policy, name="key")

    def build(self, query_shape, value_shape):
        self.query_dense.build(query_shape)
        self.key_dense.build(value_shape)
        self.coverage_kernel = self.add_weight(shape=(1, self.units), name="coverage_kernel")
        self.score_kernel = self.add_weight(shape=(self.units,), name="score_kernel")

    def prepare(self, value):
        return self.key_dense(value)

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

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def coverage_loss(weights, mask=None):
    """Penalizes attending again to source positions that earlier target positions attended to.

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
