"""The parts of a Transformer: its blocks, and the layers that tell it the positions of its inputs."""

import math

import keras
import numpy as np
from keras import ops

from attention_apps.checks import require
from attention_apps.layers.constructor_config import ConstructorConfig
from attention_apps.layers.dot_product_attention import MultiHeadAttention


@keras.saving.register_keras_serializable(package="attention_apps")
class SinusoidalPositionEncoding(ConstructorConfig, keras.layers.Layer):
    """Adds sines and cosines of the position, with wavelengths from 2π to `max_wavelength` · 2π.

    Args:
        max_wavelength: The longest wavelength, divided by 2π.

    Call arguments:
        inputs: `(batch, time, dim)`.
        position: Integers `(batch,)`, the position of the first time step. Defaults to 0.

    Returns:
        `(batch, time, dim)`.

    Example:

    >>> encoded = SinusoidalPositionEncoding()(embedded)
    >>> encoded_step = SinusoidalPositionEncoding()(embedded_step, position=position)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    """

    def __init__(self, max_wavelength=10000, **kwargs):
        super().__init__(**kwargs)
        if max_wavelength <= 0:
            raise ValueError(f"`max_wavelength` must be positive. Received: max_wavelength={max_wavelength}")
        self.max_wavelength = max_wavelength
        self.supports_masking = True

    def build(self, inputs_shape, position_shape=None):
        if inputs_shape[-1] is None:
            raise ValueError(f"`inputs` must have a known last dimension. Received: inputs.shape={inputs_shape}")

    def call(self, inputs, position=None):
        positions = ops.arange(ops.shape(inputs)[1], dtype="float32")  # (T,)
        if position is not None:
            positions = ops.expand_dims(ops.cast(position, "float32"), 1) + positions  # (B, T)
        dim = inputs.shape[-1]
        exponents = ops.arange((dim + 1) // 2, dtype="float32") * (-2 / dim * math.log(self.max_wavelength))
        angles = ops.expand_dims(positions, -1) * ops.exp(exponents)  # (..., T, D / 2)
        pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # (..., T, D / 2, 2)
        encoding = ops.reshape(pairs, (*ops.shape(angles)[:-1], -1))[..., :dim]
        return inputs + ops.cast(encoding, inputs.dtype)


@keras.saving.register_keras_serializable(package="attention_apps")
class RotaryPosition(ConstructorConfig, keras.layers.Layer):
    """Rotates pairs of features by an angle that grows with the position.

    The product of a rotated query and a rotated key depends on the distance of their positions only. Pair j, made of
    features j and `rotary_dim / 2` + j, turns by `position / max_wavelength^(2j / rotary_dim)`. (Other
    implementations pair neighbors. That is the same after reordering the columns of the projections.)

    Args:
        rotary_dim: Number of features that are rotated, an even number. The features after them stay as they are.
        max_wavelength: The longest wavelength, over 2π.

    Call arguments:
        inputs: `(batch, heads, time, dim)`.
        position: Integers `(batch,)`, the position of the first time step; by default 0.
        prepared: What `prepare` returned, for several inputs at the same positions.

    Returns:
        `(batch, heads, time, dim)`.

    Example:

    >>> rotary = RotaryPosition(32)
    >>> rotary(keras.ops.ones((2, 8, 5, 36))).shape
    TensorShape([2, 8, 5, 36])

    Reference:
        Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", eq. 34.
    """

    def __init__(self, rotary_dim, max_wavelength=10000, **kwargs):
        super().__init__(**kwargs)
        require(rotary_dim > 0 and rotary_dim % 2 == 0, "rotary_dim", "even and positive", rotary_dim)
        require(max_wavelength > 0, "max_wavelength", "positive", max_wavelength)
        self.rotary_dim = rotary_dim
        self.max_wavelength = max_wavelength

    def build(self, inputs_shape, position_shape=None):
        dim = inputs_shape[-1]
        if dim is None or dim < self.rotary_dim:
            raise ValueError(
                f"`inputs` must have at least `rotary_dim`={self.rotary_dim} features. "
                f"Received: inputs.shape={tuple(inputs_shape)}"
            )

    def prepare(self, length, dim, position=None):
        """Compute the cosines and sines of some positions.

        Args:
            length: Number of time steps.
            dim: Number of features of the inputs.
            position: Integers `(batch,)`, the position of the first time step; by default 0.

        Returns:
            Two tensors `(batch or 1, 1, length, dim)`.
        """
        positions = ops.expand_dims(ops.arange(length, dtype="float32"), 0)  # (1, T)
        if position is not None:
            positions = positions + ops.expand_dims(ops.cast(position, "float32"), 1)  # (B, T)
        # Angle per position of every feature; 0 for those that are not rotated.
        pairs = np.arange(dim) % (self.rotary_dim // 2)
        frequencies = self.max_wavelength ** (-2.0 * pairs / self.rotary_dim)
        frequencies = np.where(np.arange(dim) < self.rotary_dim, frequencies, 0.0).astype("float32")
        angles = positions[:, None, :, None] * frequencies  # (B, 1, T, D)
        signs = np.where(np.arange(dim) < self.rotary_dim // 2, -1.0, 1.0).astype("float32")
        return ops.cast(ops.cos(angles), self.compute_dtype), ops.cast(ops.sin(angles) * signs, self.compute_dtype)

    def call(self, inputs, position=None, prepared=None):
        cosines, sines = prepared or self.prepare(ops.shape(inputs)[2], inputs.shape[-1], position)
        half = self.rotary_dim // 2
        one, other, rest = ops.split(inputs, [half, self.rotary_dim], axis=-1)
        partners = ops.concatenate([other, one, rest], axis=-1)
        return inputs * cosines + partners * sines


class _TransformerBlock(ConstructorConfig, keras.layers.Layer):
    """The arguments of both blocks."""

    def __init__(self, num_heads, key_dim, hidden_dim, dropout=0.0, activation="relu", **kwargs):
        super().__init__(**kwargs)
        if hidden_dim < 1:
            raise ValueError(f"`hidden_dim` must be a positive integer. Received: hidden_dim={hidden_dim}")
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        self.activation = activation
        self.supports_masking = True


@keras.saving.register_keras_serializable(package="attention_apps")
class TransformerEncoderBlock(_TransformerBlock):
    """Self-attention and a feed-forward network, each with a normalized input and a residual connection.

    Args:
        num_heads: Number of attention heads.
        key_dim: Size of each head.
        hidden_dim: Size of the hidden layer of the feed-forward network.
        dropout: Dropout rate before each residual sum. Attention weights are not dropped (section 5.4).
        activation: Activation of the hidden layer.

    Call arguments:
        inputs: `(batch, source, dim)`.
        mask: Boolean `(batch, source)`; `True` means real.
        training: Whether to apply dropout.

    Returns:
        `(batch, source, dim)`.

    Example:

    >>> encoded = TransformerEncoderBlock(num_heads=8, key_dim=64, hidden_dim=2048)(embedded, mask=mask)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.1; Xiong et al. 2020, "On Layer Normalization in
        the Transformer Architecture", for the normalized inputs.
    """

    def __init__(self, num_heads, key_dim, hidden_dim, dropout=0.0, activation="relu", **kwargs):
        super().__init__(num_heads, key_dim, hidden_dim, dropout, activation, **kwargs)
        policy, layers = self.dtype_policy, keras.layers
        self.attention_norm = layers.LayerNormalization(epsilon=1e-6, dtype=policy, name="attention_norm")
        self.attention = MultiHeadAttention(num_heads, key_dim, return_weights=False, dtype=policy, name="attention")
        self.attention_dropout = layers.Dropout(dropout, dtype=policy)
        self.feed_forward = _FeedForward(hidden_dim, activation, dropout, dtype=policy, name="feed_forward")

    def build(self, inputs_shape):
        self.attention_norm.build(inputs_shape)
        self.attention.build(inputs_shape, inputs_shape)
        self.attention_dropout.build(inputs_shape)
        self.feed_forward.build(inputs_shape)

    def call(self, inputs, mask=None, training=None):
        normal = self.attention_norm(inputs)
        context, _, _ = self.attention(normal, normal, value_mask=mask, training=training)
        hidden = inputs + self.attention_dropout(context, training=training)
        return self.feed_forward(hidden, training=training)


@keras.saving.register_keras_serializable(package="attention_apps")
class TransformerDecoderBlock(_TransformerBlock):
    """Causal self-attention, cross-attention and a feed-forward network, each with normalized input and a residual.

    It is called like the attention layers: with all target positions at once or, with a state from
    `init_state(value, max_length)`, with some at a time. The state is the cache of the self-attention.

    Args:
        num_heads: Number of attention heads.
        key_dim: Size of each head.
        hidden_dim: Size of the hidden layer of the feed-forward network.
        dropout: Dropout rate before each residual sum. Attention weights are not dropped (section 5.4).
        activation: Activation of the hidden layer.

    Call arguments:
        query: `(batch, target, dim)`.
        value: The memory, `(batch, source, memory_dim)`. Adjacent rows of the query may share a row of it, so that
            the hypotheses of an item read it once.
        value_mask: Boolean `(batch, source)`; `True` means real.
        prepared: Result of `prepare(value)`, the projected keys and values of the cross-attention.
        state: The cache, `{"keys", "values", "position"}`, or empty.
        training: Whether to apply dropout.

    Returns:
        The output `(batch, target, dim)`, the weights of the cross-attention `(batch, target, source)` averaged over
        the heads, and the state.

    Example:

    >>> block = TransformerDecoderBlock(num_heads=8, key_dim=64, hidden_dim=2048)
    >>> output, weights, _ = block(embedded, value, value_mask=mask)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.1; Xiong et al. 2020, "On Layer Normalization in
        the Transformer Architecture", for the normalized inputs.
    """

    def __init__(self, num_heads, key_dim, hidden_dim, dropout=0.0, activation="relu", **kwargs):
        super().__init__(num_heads, key_dim, hidden_dim, dropout, activation, **kwargs)
        policy, layers = self.dtype_policy, keras.layers
        self.self_norm = layers.LayerNormalization(epsilon=1e-6, dtype=policy, name="self_norm")
        self.self_attention = MultiHeadAttention(
            num_heads, key_dim, causal=True, return_weights=False, dtype=policy, name="self_attention"
        )
        self.self_dropout = layers.Dropout(dropout, dtype=policy)
        self.cross_norm = layers.LayerNormalization(epsilon=1e-6, dtype=policy, name="cross_norm")
        self.cross_dropout = layers.Dropout(dropout, dtype=policy)
        self.feed_forward = _FeedForward(hidden_dim, activation, dropout, dtype=policy, name="feed_forward")

    def build(self, query_shape, value_shape):
        self.self_attention.build(query_shape, query_shape)
        self.cross_attention = MultiHeadAttention(
            self.num_heads,
            self.key_dim,
            output_dim=query_shape[-1],
            dtype=self.dtype_policy,
            name="cross_attention",
        )
        self.cross_attention.build(query_shape, value_shape)
        for layer in (self.self_norm, self.self_dropout, self.cross_norm, self.cross_dropout, self.feed_forward):
            layer.build(query_shape)

    def prepare(self, value):
        return self.cross_attention.prepare(value)

    def init_state(self, value, max_length=None):
        return self.self_attention.init_state(value, max_length)

    def call(self, query, value, value_mask=None, prepared=None, state=None, training=None):
        normal = self.self_norm(query)
        context, _, state = self.self_attention(normal, normal, state=state, training=training)
        hidden = query + self.self_dropout(context, training=training)
        # Rows that share a source become target positions of the cross-attention.
        normal = ops.reshape(self.cross_norm(hidden), (ops.shape(value)[0], -1, hidden.shape[-1]))
        context, weights, _ = self.cross_attention(
            normal, value, value_mask=value_mask, prepared=prepared, training=training
        )
        target, source = ops.shape(hidden)[1], ops.shape(value)[1]
        context = ops.reshape(context, (-1, target, hidden.shape[-1]))
        hidden = hidden + self.cross_dropout(context, training=training)
        weights = ops.reshape(weights, (-1, target, source))
        return self.feed_forward(hidden, training=training), weights, state


class _FeedForward(keras.layers.Layer):
    """Two dense layers with a normalized input and a residual connection."""

    def __init__(self, hidden_dim, activation, dropout, **kwargs):
        super().__init__(**kwargs)
        self.norm = keras.layers.LayerNormalization(epsilon=1e-6, dtype=self.dtype_policy, name="norm")
        self.hidden_dense = keras.layers.Dense(
            hidden_dim, activation=activation, dtype=self.dtype_policy, name="hidden"
        )
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, inputs_shape):
        self.norm.build(inputs_shape)
        self.hidden_dense.build(inputs_shape)
        self.output_dense = keras.layers.Dense(inputs_shape[-1], dtype=self.dtype_policy, name="output")
        self.output_dense.build((*inputs_shape[:-1], self.hidden_dense.units))
        self.dropout_layer.build(inputs_shape)

    def call(self, inputs, training=None):
        rows = ops.reshape(self.norm(inputs), (-1, inputs.shape[-1]))  # one plain matrix product for all positions
        output = ops.reshape(self.output_dense(self.hidden_dense(rows)), (-1, *ops.shape(inputs)[1:]))
        return inputs + self.dropout_layer(output, training=training)
