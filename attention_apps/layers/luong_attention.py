import keras
from keras import ops

from attention_apps.layers.additive_attention import additive_scores
from attention_apps.layers.constructor_config import ConstructorConfig
from attention_apps.layers.sequence_ops import masked_softmax, over_targets

_SCORES = ("dot", "general", "concat")
_WINDOWS = ("global", "local-m", "local-p")


@keras.saving.register_keras_serializable(package="attention_apps")
class LuongAttention(ConstructorConfig, keras.layers.Layer):
    """Attention with multiplicative or additive scores, over the whole source or over a window that moves along it.

    The scores are q · k (`dot`), q · W k (`general`) or v · tanh(W [q; k]) (`concat`). A local window covers the
    positions from p − D to p + D. With `local-m`, p is the target position; once the window has left the source, all
    weights are zero. With `local-p`, the query predicts p = S · sigmoid(v · tanh(W q)) for a source of S real
    positions, and the weights are multiplied by a Gaussian around p with standard deviation D / 2.

    Args:
        score: `"dot"`, `"general"` or `"concat"`.
        window: `"global"`, `"local-m"` (monotonic) or `"local-p"` (predictive).
        half_width: D, in source positions; for the local windows only.
        units: Size of the hidden layers of `concat` and `local-p`; by default that of the query.

    Call arguments:
        query: `(batch, target, query_dim)`; with `dot`, of the same size as the value.
        value: `(batch, source, dim)`.
        value_mask: Boolean `(batch, source)`; `True` means real. The real positions come first.
        prepared: Result of `prepare(value)`, the projected keys.
        state: `{"position": (batch,)}`, the index of the first target position, with `local-m`; else empty.
        single_step: Whether the target positions belong to one decoding step, so that there are only a few of them.
            Lets `concat` avoid chunks; the result is the same.

    Returns:
        The context `(batch, target, dim)`, the weights `(batch, target, source)` and the state after the last
        target position.

    Example:

    >>> attention = LuongAttention("general", window="local-p", half_width=10)
    >>> context, weights, state = attention(query, value, value_mask=mask)

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", 3.1 and 3.2,
        eq. 7-10.
    """

    def __init__(self, score="general", window="global", half_width=10, units=None, **kwargs):
        super().__init__(**kwargs)
        if score not in _SCORES:
            raise ValueError(f"`score` must be one of {_SCORES}. Received: score={score!r}")
        if window not in _WINDOWS:
            raise ValueError(f"`window` must be one of {_WINDOWS}. Received: window={window!r}")
        if half_width < 1:
            raise ValueError(f"`half_width` must be at least 1. Received: half_width={half_width}")
        if units is not None and units < 1:
            raise ValueError(f"`units` must be a positive integer or `None`. Received: units={units}")
        self.score = score
        self.window = window
        self.half_width = half_width
        self.units = units
        self.supports_masking = True

    def build(self, query_shape, value_shape):
        units = self.units or query_shape[-1]
        if self.score == "dot" and query_shape[-1] != value_shape[-1]:
            raise ValueError(
                "`query` and `value` must have the same last dimension with `score='dot'`. "
                f"Received: query.shape={tuple(query_shape)}, value.shape={tuple(value_shape)}"
            )
        if self.score == "general":
            self.key_dense = self._dense(query_shape[-1], "key", value_shape)
        if self.score == "concat":
            self.query_dense = self._dense(units, "query", query_shape)
            self.key_dense = self._dense(units, "key", value_shape)
            self.score_kernel = self.add_weight(shape=(units,), name="score_kernel")
        if self.window == "local-p":
            self.position_dense = self._dense(units, "position", query_shape)
            # Saved weights are found by this name.
            self.center_dense = self._dense(1, "centre", (*query_shape[:-1], units))

    def _dense(self, units, name, input_shape):
        dense = keras.layers.Dense(units, use_bias=False, dtype=self.dtype_policy, name=name)
        dense.build(input_shape)
        return dense

    def prepare(self, value):
        return ops.cast(value, self.compute_dtype) if self.score == "dot" else self.key_dense(value)

    def init_state(self, value):
        return {"position": ops.zeros_like(value[:, 0, 0], dtype="int32")} if self.window == "local-m" else {}

    def call(self, query, value, value_mask=None, prepared=None, state=None, single_step=False):
        keys = self.prepare(value) if prepared is None else prepared
        state = self.init_state(value) if state is None else state
        mask = over_targets(value_mask)
        if self.score == "concat":
            scores = additive_scores(self.query_dense(query), keys, self.score_kernel, single_step)
        else:
            scores = ops.matmul(query, ops.swapaxes(keys, 1, 2))  # (B, T, S)
        if self.window == "global":
            weights = masked_softmax(scores, mask)
        else:
            center, state = self._center(query, value, value_mask, state)
            weights = self._windowed_softmax(scores, mask, center)
        return ops.matmul(weights, value), weights, state

    def _center(self, query, value, value_mask, state):
        """The center of each target position's window, float32 `(batch, target)`, and the next state."""
        if self.window == "local-m":
            target = ops.shape(query)[1]
            center = ops.expand_dims(state["position"], 1) + ops.arange(target, dtype="int32")
            return ops.cast(center, "float32"), {"position": state["position"] + target}
        mask = ops.ones_like(value[:, :, 0], dtype="bool") if value_mask is None else value_mask
        length = ops.sum(ops.cast(mask, "float32"), axis=1, keepdims=True)  # (B, 1)
        share = ops.sigmoid(self.center_dense(ops.tanh(self.position_dense(query))))  # (B, T, 1)
        return length * ops.cast(ops.squeeze(share, 2), "float32"), state

    def _windowed_softmax(self, scores, mask, center):
        distance = ops.arange(ops.shape(scores)[2], dtype="float32") - ops.expand_dims(center, 2)  # (B, T, S)
        inside = ops.abs(distance) <= self.half_width
        weights = masked_softmax(scores, inside if mask is None else ops.logical_and(inside, mask))
        if self.window == "local-m":
            return weights
        gaussian = ops.exp(-ops.square(distance) / (2 * (self.half_width / 2) ** 2))
        return weights * ops.cast(gaussian, weights.dtype)
