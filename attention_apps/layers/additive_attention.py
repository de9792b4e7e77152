import keras
from keras import ops

from attention_apps.layers.additive_scores import additive_scores
from attention_apps.layers.masks import masked_softmax, over_targets


@keras.saving.register_keras_serializable(package="attention_apps")
class AdditiveAttention(keras.layers.Layer):
    """Scores each source position with a network of one hidden layer: v · tanh(W q + U k).

    The hidden layer is computed in chunks, so memory does not grow with target × source × units.

    Args:
        units: Size of the hidden layer.

    Call arguments:
        query: `(batch, target, query_dim)`.
        value: `(batch, source, dim)`.
        value_mask: Boolean `(batch, source)`; `True` means real.
        prepared: Result of `prepare(value)`, the projected keys `(batch, source, units)`.
        state: Not used; returned as it is.
        single_step: Whether the target positions belong to one decoding step, so that there are only a few of them.
            Avoids chunks; the result is the same.

    Returns:
        The context `(batch, target, dim)`, the weights `(batch, target, source)` and the state.

    Example:

    >>> attention = AdditiveAttention(256)
    >>> context, weights, _ = attention(query, value, value_mask=mask)

    Reference:
        Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate", A.1.2.
    """

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        if units < 1:
            raise ValueError(f"`units` must be a positive integer. Received: units={units}")
        self.units = units
        self.supports_masking = True
        self.query_dense = keras.layers.Dense(units, use_bias=False, dtype=self.dtype_policy, name="query")
        self.key_dense = keras.layers.Dense(units, use_bias=False, dtype=self.dtype_policy, name="key")

    def build(self, query_shape, value_shape):
        self.query_dense.build(query_shape)
        self.key_dense.build(value_shape)
        self.score_kernel = self.add_weight(shape=(self.units,), name="score_kernel")

    def prepare(self, value):
        return self.key_dense(value)

    def init_state(self, value):
        return {}

    def call(self, query, value, value_mask=None, prepared=None, state=None, single_step=False):
        keys = self.prepare(value) if prepared is None else prepared  # (B, S, U)
        scores = additive_scores(self.query_dense(query), keys, self.score_kernel, single_step)  # (B, T, S)
        weights = masked_softmax(scores, over_targets(value_mask))
        return ops.matmul(weights, value), weights, {} if state is None else state

    def get_config(self):
        return {**super().get_config(), "units": self.units}
