import keras
from keras import ops

from attention_apps.layers.dot_product_attention import MultiHeadAttention


class _TransformerBlock(keras.layers.Layer):
    """The arguments of both blocks, and the feed-forward network at their end."""

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

    def _attention(self, name, **options):
        return MultiHeadAttention(
            self.num_heads, self.key_dim, dropout=self.dropout, dtype=self.dtype_policy, name=name, **options
        )

    def _norm(self, name):
        return keras.layers.LayerNormalization(epsilon=1e-6, dtype=self.dtype_policy, name=name)

    def _dropout(self):
        return keras.layers.Dropout(self.dropout, dtype=self.dtype_policy)

    def _feed_forward(self):
        return _FeedForward(
            self.hidden_dim, self.activation, self.dropout, dtype=self.dtype_policy, name="feed_forward"
        )

    def get_config(self):
        names = ("num_heads", "key_dim", "hidden_dim", "dropout", "activation")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


@keras.saving.register_keras_serializable(package="attention_apps")
class TransformerEncoderBlock(_TransformerBlock):
    """Self-attention and a feed-forward network, each with a normalized input and a residual connection.

    Args:
        num_heads: Number of attention heads.
        key_dim: Size of each head.
        hidden_dim: Size of the hidden layer of the feed-forward network.
        dropout: Dropout rate on the attention weights and before each residual sum.
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
        self.attention_norm = self._norm("attention_norm")
        self.attention = self._attention("attention", return_weights=False)
        self.attention_dropout = self._dropout()
        self.feed_forward = self._feed_forward()

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
        dropout: Dropout rate on the attention weights and before each residual sum.
        activation: Activation of the hidden layer.

    Call arguments:
        query: `(batch, target, dim)`.
        value: The memory, `(batch, source, memory_dim)`.
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
        self.self_norm = self._norm("self_norm")
        self.self_attention = self._attention("self_attention", causal=True, return_weights=False)
        self.self_dropout = self._dropout()
        self.cross_norm = self._norm("cross_norm")
        self.cross_dropout = self._dropout()
        self.feed_forward = self._feed_forward()

    def build(self, query_shape, value_shape):
        self.self_attention.build(query_shape, query_shape)
        self.cross_attention = self._attention("cross_attention", output_dim=query_shape[-1])
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
        context, weights, _ = self.cross_attention(
            self.cross_norm(hidden), value, value_mask=value_mask, prepared=prepared, training=training
        )
        hidden = hidden + self.cross_dropout(context, training=training)
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
        output = ops.reshape(self.output_dense(self.hidden_dense(rows)), ops.shape(inputs))
        return inputs + self.dropout_layer(output, training=training)
