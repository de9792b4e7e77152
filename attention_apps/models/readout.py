"""From a decoder's state to the words: the last layers of a recurrent decoder."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="attention_apps")
class Readout(keras.layers.Layer):
    """Joins hidden state, context and last word into one vector, and that into logits.

    `deep`: tanh(E y + L_h h + L_z z), Xu et al. 2015, eq. 7. Otherwise tanh(W [z; h]), the attentional vector of Luong
    et al. 2015, eq. 5; without a context, the hidden state itself. With `tied` embeddings the vector is as wide as an
    embedding and is compared with each of them.

    Args:
        vocabulary_size: number of words.
        embedding_dim: width of the embeddings.
        units: width of the attentional vector where it is free.
        deep: whether the last word goes in as well.
        tied: whether `to_logits` is given the embedding matrix.
        dropout: rate on the vector.
        variational: whether the dropout mask is the same at every step.

    Call arguments:
        hidden: `(rows, time, units)`.
        context: `(rows, time, dim)` or `None`.
        embedded: `(rows, time, embedding_dim)`, the last words.

    Returns:
        The vector, `(rows, time, width)`.
    """

    def __init__(
        self,
        vocabulary_size,
        embedding_dim,
        units,
        deep=False,
        tied=False,
        dropout=0.0,
        variational=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.embedding_dim = embedding_dim
        self.units = units
        self.deep = deep
        self.tied = tied
        self.dropout = dropout
        self.variational = variational
        self.width = embedding_dim if deep or tied else units
        self.hidden_dense = keras.layers.Dense(self.width, dtype=self.dtype_policy, name="hidden")
        self.context_dense = keras.layers.Dense(self.width, use_bias=False, dtype=self.dtype_policy, name="context")
        self.output_dense = keras.layers.Dense(vocabulary_size, dtype=self.dtype_policy, name="output")

    def build(self, hidden_dim, context_dim):
        self.has_context = context_dim > 0
        self.joins = self.deep or self.has_context or self.width != hidden_dim
        if self.joins:
            self.hidden_dense.build((None, hidden_dim))
        if self.has_context:
            self.context_dense.build((None, context_dim))
        if self.tied:
            self.bias = self.add_weight(shape=(self.vocabulary_size,), initializer="zeros", name="bias")
        else:
            self.output_dense.build((None, self.width))
        shape = (None, 1, self.width) if self.variational else None
        self.drop = keras.layers.Dropout(self.dropout, noise_shape=shape, dtype=self.dtype_policy)
        self.built = True

    def call(self, hidden, context, embedded):
        if not self.joins:
            return hidden
        joined = self.hidden_dense(hidden)
        if self.has_context:
            joined = joined + self.context_dense(context)
        if self.deep:
            joined = joined + embedded
        return ops.tanh(joined)

    def to_logits(self, vector, embeddings=None):
        """Logits `(..., vocabulary)` of a vector; `embeddings` is the matrix where they are tied."""
        vector = self.drop(vector) if len(vector.shape) == 3 else vector
        if not self.tied:
            return self.output_dense(vector)
        matrix = ops.cast(embeddings, self.compute_dtype)
        return ops.matmul(vector, ops.transpose(matrix)) + ops.cast(self.bias, self.compute_dtype)

    def get_config(self):
        names = ("vocabulary_size", "embedding_dim", "units", "deep", "tied", "dropout", "variational")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
