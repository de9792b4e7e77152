"""A decoder that marks each word of the source as kept or deleted."""

import keras
from keras import ops

from attention_apps.constants import END
from attention_apps.models.recurrent_decoder_parts import DecoderCell
from attention_apps.models.seq2seq import Decoder, repeat_for_targets

DELETE, KEEP = 4, 5
_NUM_TAGS = 6
# The logit of tokens that cannot follow: a tag after the last word, the end before it. It fits into float16.
_IMPOSSIBLE = -1e4


@keras.saving.register_keras_serializable(package="attention_apps")
class TagDecoder(Decoder):
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
        hidden, _ = self.cell.run(self.cell.project(inputs), self.cell.zero_state(ops.shape(tokens)[0]))
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
        layer = self.cell.step(self.cell.project(inputs), None, state["layer"])
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

    def get_config(self):
        names = ("units", "tag_dim", "dropout")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _lengths(memory):
    return ops.sum(ops.cast(memory["mask"], "int32"), axis=1)
