"""What the Transformer encoder and decoder share: embeddings with positions, a stack of blocks and a final norm."""

import keras

from attention_apps.layers.sinusoidal_position_encoding import SinusoidalPositionEncoding


class TransformerStack:
    """Mixin for a Keras layer with the attributes of the constructor of `TransformerEncoder`."""

    def _make_stack(self, block_class):
        """Creates the children; `block_class` is one of the Transformer blocks."""
        if self.num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1. Received: num_layers={self.num_layers}")
        policy = self.dtype_policy
        self.embedding = keras.layers.Embedding(
            self.vocabulary_size, self.embedding_dim, dtype=policy, name="embedding"
        )
        self.position_encoding = SinusoidalPositionEncoding(dtype=policy, name="position_encoding")
        self.blocks = [
            block_class(
                self.num_heads,
                self.embedding_dim // self.num_heads,
                self.hidden_dim,
                dropout=self.dropout,
                dtype=policy,
                name=f"block_{index}",
            )
            for index in range(self.num_layers)
        ]
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, dtype=policy, name="norm")
        self.drop = keras.layers.Dropout(self.dropout, dtype=policy)

    def _build_stack(self, *value_shape):
        """Builds the children; `value_shape` is the shape of the memory if the blocks attend to one."""
        if not self.embedding.built:
            self.embedding.build((None, None))
        shape = (None, None, self.embedding_dim)
        for block in self.blocks:
            block.build(shape, *value_shape)
        self.norm.build(shape)

    def _embed(self, token_ids, position=None):
        """Scales the embeddings by √dim, adds positions and applies dropout: `(batch, time, embedding_dim)`."""
        embedded = self.embedding(token_ids) * self.embedding_dim**0.5
        return self.drop(self.position_encoding(embedded, position=position))

    def get_config(self):
        names = ("vocabulary_size", "embedding_dim", "num_layers", "num_heads", "hidden_dim", "dropout")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
