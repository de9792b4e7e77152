"""The contract that search, training and export rely on, and what all decoders share."""

import keras
from keras import ops, tree

from attention_apps.constants import UNKNOWN


class Decoder(keras.layers.Layer):
    """Writes a target while reading a memory.

    Call it for teacher forcing; use `init_state` and `step` for a search. A subclass sets `embedding` and
    `vocabulary_size`, and implements `build(tokens_shape, memory_shape)`, `init_state`, `step_with_attention` (or
    `step`) and `_teacher_force`.

    Call arguments:
        tokens: `(batch, target)`, starting with the start token, or `(batch, targets, target)` for several targets of
            one source.
        memory: The encoder's dict: `values` `(batch, source, dim)`, `mask` `(batch, source)`, and more.
        return_dict: Whether to return a dict of everything that a loss or an application can ask for, instead of the
            logits.

    Returns:
        Logits `(batch, target, vocabulary)`; or a dict of `logits`, `attention` `(batch, target, source)` (`None` for
        a decoder without attention), `attention_state` (the state of the attention layer after the last position),
        and more. They have a `targets` axis after the batch if the tokens have one.
    """

    def call(self, tokens, memory, return_dict=False):
        rows, num_targets = flatten_targets(tokens)  # (R, T), R = B * N
        outputs, attention_state = self._teacher_force(rows, memory, num_targets)
        if not return_dict:
            return unflatten_targets(outputs["logits"], num_targets)
        outputs = {name: unflatten_targets(tensor, num_targets) for name, tensor in outputs.items()}
        return {**outputs, "attention_state": attention_state}

    def _teacher_force(self, tokens, memory, num_targets):
        """The outputs of all steps of `tokens` `(rows, target)`, and the final state of the attention layer.

        There are `num_targets` adjacent rows for each item of the memory, one if it is `None`.
        """
        raise NotImplementedError

    def init_state(self, memory, max_length=None):
        """The state before the first step: a dict of tensors with a batch axis, which a search can reorder.

        Args:
            memory: The encoder's dict.
            max_length: How many steps will follow at most, if known: the size of a cache.
        """
        raise NotImplementedError

    def step(self, token, state):
        """Maps one token `(batch,)` and the state to logits `(batch, vocabulary)` and the next state."""
        outputs, state = self.step_with_attention(token, state)
        return outputs["logits"], state

    def step_with_attention(self, token, state):
        """Like `step`, but returns a dict with `attention` and `features` next to the `logits`."""
        raise NotImplementedError

    def share_embedding(self, embedding):
        """Uses the word embedding of an encoder instead of its own. Call it before anything is built."""
        expected = (self.embedding.input_dim, self.embedding.output_dim)
        received = (embedding.input_dim, embedding.output_dim)
        if expected != received:
            raise ValueError(f"A shared embedding must be of shape {expected}. Received: shape={received}")
        self.embedding = embedding

    def _known_ids(self, tokens):
        """Ids beyond the vocabulary are copied words. Embed them as the unknown word."""
        return ops.where(tokens >= self.vocabulary_size, UNKNOWN, tokens)


def repeat_for_targets(structure, num_targets):
    """Repeats every row of the tensors in a nested structure for each of its targets."""
    if num_targets is None:
        return structure
    return tree.map_structure(lambda tensor: ops.repeat(tensor, num_targets, axis=0), structure)


def serialize_unbuilt(layer):
    """The configuration of a child layer without the shapes it was built with: its parent builds it."""
    if layer is None:
        return None
    config = keras.saving.serialize_keras_object(layer)
    return {name: value for name, value in config.items() if name != "build_config"}


def flatten_targets(tokens):
    """`(batch, targets, target)` to `(batch * targets, target)`, and the number of targets or `None`."""
    if len(tokens.shape) == 2:
        return tokens, None
    num_targets = ops.shape(tokens)[1]
    return ops.reshape(tokens, (-1, ops.shape(tokens)[2])), num_targets


def unflatten_targets(tensor, num_targets):
    if num_targets is None or tensor is None:
        return tensor
    return ops.reshape(tensor, (-1, num_targets, *ops.shape(tensor)[1:]))
