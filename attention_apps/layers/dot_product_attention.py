"""Scaled dot-product attention, with one head and with several."""

import math

import keras
from keras import ops

from attention_apps.layers.constructor_config import ConstructorConfig
from attention_apps.layers.sequence_ops import causal_mask, masked_softmax, over_targets


@keras.saving.register_keras_serializable(package="attention_apps")
class ScaledDotProductAttention(ConstructorConfig, keras.layers.Layer):
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


@keras.saving.register_keras_serializable(package="attention_apps")
class MultiHeadAttention(ConstructorConfig, keras.layers.Layer):
    """Scaled dot-product attention with several heads.

    Use it as self-attention, `attention(x, x)`, or as cross-attention, `attention(query, value)`.

    Causal self-attention can run step by step with a cache: `init_state(value, max_length)` makes an empty one. Each
    call appends the keys and values of its positions and attends to all positions so far. The source positions are
    then those of the cache.

    Args:
        num_heads: Number of heads.
        key_dim: Size of each head's queries, keys and values.
        num_key_value_heads: Number of heads of keys and values, each shared by a group of query heads. Defaults to
            `num_heads`.
        causal: Whether a target position sees only the source positions up to itself; the last one sees all.
        dropout: Dropout rate on the weights.
        use_bias: Whether the projections have a bias.
        output_dim: Size of the context. Defaults to that of the value.
        return_weights: If `False`, returns `None` instead of the weights and uses the fused attention of the backend
            if it has one.

    Call arguments:
        query: `(batch, target, query_dim)`.
        value: `(batch, source, dim)`.
        value_mask: Boolean `(batch, source)`; `True` means real.
        prepared: Result of `prepare(value)`, the projected `keys` and `values`.
        state: The cache, `{"keys", "values", "position"}`, or empty.
        training: Whether to apply dropout.

    Returns:
        The context `(batch, target, output_dim)`, the weights `(batch, target, source)` averaged over the heads,
        and the state.

    Example:

    >>> attention = MultiHeadAttention(num_heads=8, key_dim=64, causal=True)
    >>> state = attention.init_state(x, max_length=50)
    >>> context, weights, state = attention(x[:, :1], x[:, :1], state=state)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2; Ainslie et al. 2023, "GQA", section 2.2, for
        the grouped heads.
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        num_key_value_heads=None,
        causal=False,
        dropout=0.0,
        use_bias=True,
        output_dim=None,
        return_weights=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if num_heads < 1 or key_dim < 1:
            raise ValueError(
                f"`num_heads` and `key_dim` must be positive. Received: num_heads={num_heads}, key_dim={key_dim}"
            )
        if num_key_value_heads is not None and (num_key_value_heads < 1 or num_heads % num_key_value_heads):
            raise ValueError(
                "`num_heads` must be a multiple of `num_key_value_heads`. "
                f"Received: num_heads={num_heads}, num_key_value_heads={num_key_value_heads}"
            )
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.num_key_value_heads = num_key_value_heads
        self.causal = causal
        self.dropout = dropout
        self.use_bias = use_bias
        self.output_dim = output_dim
        self.return_weights = return_weights
        self.supports_masking = True
        self._shared_heads = num_key_value_heads or num_heads
        self.query_dense, self.key_dense, self.value_dense = (
            keras.layers.Dense(heads * key_dim, use_bias=use_bias, dtype=self.dtype_policy, name=name)
            for name, heads in (("query", num_heads), ("key", self._shared_heads), ("value", self._shared_heads))
        )
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, query_shape, value_shape):
        self.query_dense.build(query_shape)
        self.key_dense.build(value_shape)
        self.value_dense.build(value_shape)
        self.dropout_layer.build((None, self.num_heads, None, None))
        self.output_dense = keras.layers.Dense(
            self.output_dim or value_shape[-1], use_bias=self.use_bias, dtype=self.dtype_policy, name="output"
        )
        self.output_dense.build((*query_shape[:-1], self.num_heads * self.key_dim))

    def prepare(self, value):
        return {
            "keys": self._project(self.key_dense, value, self._shared_heads),
            "values": self._project(self.value_dense, value, self._shared_heads),
        }

    def init_state(self, value, max_length=None):
        if max_length is None:
            return {}
        if not self.causal:
            raise ValueError("A cache needs `causal=True`. Received: causal=False")
        shape = (ops.shape(value)[0], self._shared_heads, max_length, self.key_dim)
        return {
            "keys": ops.zeros(shape, dtype=self.compute_dtype),
            "values": ops.zeros(shape, dtype=self.compute_dtype),
            "position": ops.zeros(shape[:1], dtype="int32"),
        }

    def call(self, query, value, value_mask=None, prepared=None, state=None, training=None):
        prepared = self.prepare(value) if prepared is None else prepared
        query, mask = self._project(self.query_dense, query, self.num_heads), over_targets(value_mask)
        target, seen = ops.shape(query)[2], None
        if state:  # each new position sees the cache up to itself
            positions = ops.expand_dims(state["position"], 1) + ops.arange(target, dtype="int32")  # (B, T)
            seen = ops.expand_dims(positions, 2) >= ops.arange(ops.shape(state["keys"])[2], dtype="int32")
            prepared = state = _append(state, prepared)
        elif self.causal:
            seen = causal_mask(target, ops.shape(prepared["keys"])[2])[None]  # (1, T, S)
        if seen is not None:
            mask = seen if mask is None else ops.logical_and(seen, mask)
        needs_weights = self.return_weights or (training and self.dropout)
        # TensorFlow has no fused attention.
        is_fused = not needs_weights and keras.backend.backend() != "tensorflow"
        attend = self._attend_fused if is_fused else self._attend
        context, weights = attend(query, prepared["keys"], prepared["values"], mask, training)  # (B, H, T, D)
        context = context if context.shape[2] == 1 else ops.swapaxes(context, 1, 2)
        output = self.output_dense(ops.reshape(context, (-1, self.num_heads * self.key_dim)))
        return ops.reshape(output, (-1, target, self.output_dense.units)), weights, {} if state is None else state

    def _project(self, dense, inputs, num_heads):
        """Project all positions in one matrix product. With three axes Keras needs many small operations for it."""
        projected = dense(ops.reshape(inputs, (-1, inputs.shape[-1])))
        if inputs.shape[1] == 1:
            return ops.reshape(projected, (-1, num_heads, 1, self.key_dim))
        projected = ops.reshape(projected, (-1, ops.shape(inputs)[1], num_heads, self.key_dim))
        return ops.swapaxes(projected, 1, 2)  # (B, H, T, D)

    def _attend(self, query, keys, values, mask, training):
        scores = self._multiply(query / math.sqrt(self.key_dim), ops.swapaxes(keys, 2, 3))
        weights = masked_softmax(scores, None if mask is None else mask[:, None])  # (B, H, T, S)
        context = self._multiply(self.dropout_layer(weights, training=training), values)
        return context, ops.mean(weights, axis=1) if self.return_weights else None

    def _multiply(self, rows, shared):
        """Multiply `(batch, heads, target, ...)` by the matrices of the shared heads, `(batch, shared heads, ...)`."""
        if self._shared_heads == self.num_heads:
            return ops.matmul(rows, shared)
        grouped = ops.reshape(rows, (ops.shape(rows)[0], self._shared_heads, -1, ops.shape(rows)[3]))
        return ops.reshape(ops.matmul(grouped, shared), (*ops.shape(rows)[:3], ops.shape(shared)[3]))

    def _attend_fused(self, query, keys, values, mask, training):
        group = self.num_heads // self._shared_heads
        keys, values = (ops.repeat(x, group, axis=1) if group > 1 else x for x in (keys, values))
        query, keys, values = (ops.swapaxes(x, 1, 2) for x in (query, keys, values))  # (B, T, H, D)
        if mask is None:
            return ops.swapaxes(ops.dot_product_attention(query, keys, values), 1, 2), None
        context = ops.dot_product_attention(query, keys, values, mask=mask[:, None])
        context = ops.where(ops.any(mask, axis=-1)[..., None, None], context, ops.zeros_like(context))
        return ops.swapaxes(context, 1, 2), None


def _append(state, new):
    """Write the new keys and values after the last position of the cache."""
    length, added = ops.shape(state["keys"])[2], ops.shape(new["keys"])[2]
    index = ops.arange(length, dtype="int32") - ops.expand_dims(state["position"], 1)  # (B, max_length)
    written = ops.logical_and(index >= 0, index < added)[:, None, :, None]
    index = ops.clip(index, 0, added - 1)[:, None, :, None]
    appended = {"position": state["position"] + added}
    for name in ("keys", "values"):
        moved = new[name] if new[name].shape[2] == 1 else ops.take_along_axis(new[name], index, axis=2)
        appended[name] = ops.where(written, moved, state[name])
    return appended
