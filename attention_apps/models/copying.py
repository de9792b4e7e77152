"""Decoders that take words of the source: one copies them into its target, one keeps or deletes each of them."""

import keras
from keras import ops

from attention_apps.constants import END
from attention_apps.layers.constructor_config import ConstructorConfig
from attention_apps.layers.recurrent import DecoderCell
from attention_apps.models.seq2seq import Decoder, repeat_for_targets

_TINY = 1e-30
DELETE, KEEP = 4, 5
_NUM_TAGS = 6
# The logit of tokens that cannot follow: a tag after the last word, the end before it. It fits into float16.
_IMPOSSIBLE = -1e4


@keras.saving.register_keras_serializable(package="attention_apps")
class PointerGenerator(ConstructorConfig, keras.layers.Layer):
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
        switch = self.switch_dense(parts["features"])[..., 0]
        parts = {**parts, "switch": switch, "source_ids": memory["source_ids"]}
        if return_dict:
            return parts
        attention, source_ids = parts["attention"], parts["source_ids"]
        for _ in range(len(attention.shape) - 2):  # the same source ids at every step
            source_ids = ops.expand_dims(source_ids, 1)
        source_ids = ops.broadcast_to(source_ids, ops.shape(attention))
        return self._mix(parts["logits"], attention, switch, source_ids)

    def init_state(self, memory, max_length=None):
        """The state before the first step; see `Decoder.init_state`."""
        return {**self.decoder.init_state(memory, max_length), "source_ids": memory["source_ids"]}

    def step(self, token, state):
        """Map a token `(batch,)` and the state to log-probabilities `(batch, vocabulary + source)` and a new state."""
        outputs, new_state = self.decoder.step_with_attention(token, state)
        switch = self.switch_dense(outputs["features"])[..., 0]
        mixed = self._mix(outputs["logits"], outputs["attention"], switch, state["source_ids"])
        return mixed, {**new_state, "source_ids": state["source_ids"]}

    def _mix(self, logits, attention, switch, source_ids):
        """The log of the mixture; all arguments have the same leading axes."""
        logits, attention, switch = (ops.cast(x, "float32") for x in (logits, attention, switch))
        generate = ops.expand_dims(ops.sigmoid(switch), -1)
        words = ops.concatenate([ops.softmax(logits, axis=-1) * generate, ops.zeros_like(attention)], axis=-1)
        # Add the weight of each source position to the word there.
        copied = ops.reshape(attention * (1 - generate), (-1,))
        source, size = ops.shape(attention)[-1], ops.shape(words)[-1]
        rows = ops.arange(ops.size(copied) // source)
        rows = ops.reshape(ops.broadcast_to(ops.expand_dims(rows, 1), (ops.shape(rows)[0], source)), (-1,))
        indices = ops.stack([ops.cast(rows, "int32"), ops.cast(ops.reshape(source_ids, (-1,)), "int32")], axis=-1)
        mixed = ops.scatter_update(ops.reshape(words, (-1, size)), indices, copied, reduction="add")
        return ops.log(ops.maximum(ops.reshape(mixed, ops.shape(words)), _TINY))


@keras.saving.register_keras_serializable(package="attention_apps")
class TagDecoder(ConstructorConfig, Decoder):
    """LSTM over the tags of the source words, in their order: step t reads the encoder's state at word t.

    Call it for teacher forcing; use `init_state` and `step` for a search. The tokens are tags, 4 to delete a word and
    5 to keep it, one for each word, followed by the end token. Each step reads a fixed position, so that its attention
    is a diagonal.

    Args:
        units: Width of the recurrent state.
        tag_dim: Width of the embedding of the previous tag.
        dropout: Dropout rate on the memory and before the output.

    Call arguments:
        tokens: `(batch, target)` or `(batch, targets, target)`: the start token, then the tags.
        memory: The encoder's dict: `values` `(batch, source, dim)` and `mask` `(batch, source)`.
        return_dict: Whether to return a dict instead of the logits.

    Returns:
        Logits `(batch, target, 6)`; or a dict of `logits`, `attention` `(batch, target, source)` and an empty
        `attention_state`. They have a `targets` axis after the batch if the tokens have one.

    Reference:
        Filippova et al. 2015, "Sentence Compression by Deletion with LSTMs".
    """

    def __init__(self, units, tag_dim=16, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.tag_dim = tag_dim
        self.dropout = dropout
        self.vocabulary_size = _NUM_TAGS
        policy = self.dtype_policy
        self.embedding = keras.layers.Embedding(_NUM_TAGS, tag_dim, dtype=policy, name="embedding")
        self.cell = DecoderCell(units, dtype=policy, name="cell")
        self.output_dense = keras.layers.Dense(2, dtype=policy, name="output")
        self.drop = keras.layers.Dropout(dropout, dtype=policy)

    def build(self, tokens_shape, memory_shape):
        values_dim = memory_shape["values"][-1]
        self.embedding.build((None, None))
        self.cell.build(values_dim + self.tag_dim)
        self.output_dense.build((None, self.units + values_dim))
        self.built = True

    def _teacher_force(self, tokens, memory, num_targets):
        values, lengths = repeat_for_targets((memory["values"], _lengths(memory)), num_targets)
        positions, source = ops.arange(ops.shape(tokens)[1]), ops.shape(values)[1]
        words = self.drop(ops.take(values, ops.minimum(positions, source - 1), axis=1))  # (R, T, D)
        inputs = ops.concatenate([words, self.embedding(tokens)], axis=-1)
        hidden, _ = self.cell.run(self.cell.ahead_dense(inputs), self.cell.zero_state(ops.shape(tokens)[0]))
        is_word = ops.expand_dims(positions, 0) < ops.expand_dims(lengths, 1)  # (R, T)
        is_diagonal = ops.expand_dims(positions, 1) == ops.expand_dims(ops.arange(source), 0)  # (T, S)
        attention = ops.logical_and(ops.expand_dims(is_word, -1), ops.expand_dims(is_diagonal, 0))
        logits = self._logits(self.drop(hidden), words, is_word)
        return {"logits": logits, "attention": ops.cast(attention, self.compute_dtype)}, {}

    def init_state(self, memory, max_length=None):
        """The state before the first step."""
        lengths = _lengths(memory)
        return {
            "layer": self.cell.zero_state(ops.shape(memory["values"])[0]),
            "position": ops.zeros_like(lengths),
            "values": memory["values"],
            "lengths": lengths,
        }

    def step(self, token, state):
        """Map one tag `(batch,)` and the state to logits `(batch, 6)` and the next state."""
        position, values = state["position"], state["values"]
        rows = ops.arange(ops.shape(values)[0]) * ops.shape(values)[1]
        place = ops.minimum(position, ops.shape(values)[1] - 1)
        word = ops.take(ops.reshape(values, (-1, values.shape[-1])), rows + place, axis=0)  # (B, D)
        inputs = ops.concatenate([word, self.embedding(token)], axis=-1)
        layer = self.cell.step(self.cell.ahead_dense(inputs), None, state["layer"])
        logits = self._logits(layer[0], word, position < state["lengths"])
        return logits, {**state, "layer": layer, "position": position + 1}

    def _logits(self, hidden, words, is_word):
        """Logits that allow the two tags at a word, and only the end after the last word."""
        tags = self.output_dense(ops.concatenate([hidden, words], axis=-1))
        is_word = ops.expand_dims(is_word, -1)
        impossible = ops.full_like(tags[..., :1], _IMPOSSIBLE)
        end = ops.where(is_word, impossible, 0.0)
        tags = ops.where(is_word, tags, _IMPOSSIBLE)
        return ops.concatenate([impossible] * END + [end, impossible, tags], axis=-1)


def _lengths(memory):
    return ops.sum(ops.cast(memory["mask"], "int32"), axis=1)
