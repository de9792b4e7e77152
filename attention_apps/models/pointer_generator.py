"""Copying words of the source into the target."""

import keras
from keras import ops

from attention_apps.models.seq2seq import serialize_unbuilt

_TINY = 1e-30


@keras.saving.register_keras_serializable(package="attention_apps")
class PointerGenerator(keras.layers.Layer):
    """Mixes copying from the source into a decoder's output distribution.

    P(w) = p_gen P_vocabulary(w) + (1 - p_gen) Σ_{s: x_s = w} a_s, where the switch p_gen is computed from context,
    hidden state and input of each step (See et al. 2017, eq. 8 and 9). The result is the log of that distribution over
    V + S ids: id V + s stands for the out-of-vocabulary word at source position s, the first position it occurs at.

    Args:
        decoder: A `RecurrentDecoder` with attention, or a `TransformerDecoder`.

    Call arguments:
        tokens: As for the decoder; ids beyond the vocabulary are embedded as the unknown word.
        memory: As for the decoder, with `source_ids` `(batch, source)`, ids of the extended vocabulary.
        return_dict: Whether to return the parts of the mixture instead of the mixture. A loss looks up the
            probabilities of the targets in them without computing the whole distribution.

    Returns:
        Log-probabilities `(batch, target, vocabulary + source)`; or a dict of `logits` over the vocabulary alone,
        `(batch, target, vocabulary)`, the `switch` before its sigmoid `(batch, target)`, the `source_ids`, and
        everything else that the decoder returns.

    Reference:
        See, Liu and Manning 2017, "Get To The Point: Summarization with Pointer-Generator Networks", section 2.2.
    """

    normalized = True  # `step` returns log-probabilities

    def __init__(self, decoder, **kwargs):
        super().__init__(**kwargs)
        if getattr(decoder, "attention", True) is None:
            raise ValueError("`decoder` must have an attention layer to copy by. Received: attention=None")
        self.decoder = decoder
        self.vocabulary_size = decoder.vocabulary_size
        self.switch_dense = keras.layers.Dense(1, dtype=self.dtype_policy, name="switch")

    @property
    def attention(self):
        """The decoder's attention layer."""
        return self.decoder.attention

    def share_embedding(self, embedding):
        """Use the word embedding of an encoder instead of the decoder's own. Call it before anything is built."""
        self.decoder.share_embedding(embedding)

    def build(self, tokens_shape, memory_shape):
        if not self.decoder.built:
            self.decoder.build(tokens_shape, memory_shape)
        self.switch_dense.build((None, self.decoder.feature_dim))
        self.built = True

    def call(self, tokens, memory, return_dict=False):
        parts = self.decoder(tokens, memory, return_dict=True)
        parts = {**parts, "switch": self._switch(parts["features"]), "source_ids": memory["source_ids"]}
        if return_dict:
            return parts
        attention, source_ids = parts["attention"], parts["source_ids"]
        for _ in range(len(attention.shape) - 2):  # the same source ids at every step
            source_ids = ops.expand_dims(source_ids, 1)
        source_ids = ops.broadcast_to(source_ids, ops.shape(attention))
        return self._mix(parts["logits"], parts["attention"], parts["switch"], source_ids)

    def init_state(self, memory, max_length=None):
        """The state before the first step; see `Decoder.init_state`."""
        return {**self.decoder.init_state(memory, max_length), "source_ids": memory["source_ids"]}

    def step(self, token, state):
        """Map a token `(batch,)` and the state to log-probabilities `(batch, vocabulary + source)` and a new state."""
        outputs, new_state = self.decoder.step_with_attention(token, state)
        switch = self._switch(outputs["features"])
        mixed = self._mix(outputs["logits"], outputs["attention"], switch, state["source_ids"])
        return mixed, {**new_state, "source_ids": state["source_ids"]}

    def _switch(self, features):
        return self.switch_dense(features)[..., 0]

    def _mix(self, logits, attention, switch, source_ids):
        """The log of the mixture; all arguments have the same leading axes."""
        logits, attention, switch = (ops.cast(x, "float32") for x in (logits, attention, switch))
        generate = ops.expand_dims(ops.sigmoid(switch), -1)
        words = ops.concatenate([ops.softmax(logits, axis=-1) * generate, ops.zeros_like(attention)], axis=-1)
        return ops.log(ops.maximum(_scatter_add(words, source_ids, attention * (1 - generate)), _TINY))

    def get_config(self):
        return {**super().get_config(), "decoder": serialize_unbuilt(self.decoder)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "decoder": keras.saving.deserialize_keras_object(config["decoder"])})


def _scatter_add(table, ids, values):
    """Add values `(..., source)` to the entries of a table `(..., size)` given by the ids."""
    source, size = ops.shape(values)[-1], ops.shape(table)[-1]
    flat = ops.reshape(values, (-1,))
    rows = ops.arange(ops.size(flat) // source)
    rows = ops.reshape(ops.broadcast_to(ops.expand_dims(rows, 1), (ops.shape(rows)[0], source)), (-1,))
    indices = ops.stack([ops.cast(rows, "int32"), ops.cast(ops.reshape(ids, (-1,)), "int32")], axis=-1)
    summed = ops.scatter_update(ops.reshape(table, (-1, size)), indices, flat, reduction="add")
    return ops.reshape(summed, ops.shape(table))
