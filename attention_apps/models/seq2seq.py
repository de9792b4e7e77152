"""An encoder and a decoder as one Keras model, and the contract that search, training and export rely on."""

import contextlib
from collections.abc import Mapping

import keras
from keras import ops, tree

from attention_apps.constants import UNKNOWN
from attention_apps.layers.constructor_config import ConstructorConfig


@keras.saving.register_keras_serializable(package="attention_apps")
class Seq2Seq(ConstructorConfig, keras.Model):
    """Reads a source with an encoder and writes a target with a decoder.

    Args:
        encoder: Maps a source (a dict of tensors) to a memory (a dict of tensors).
        decoder: Follows the decoder's contract: `decoder(tokens, memory)`, `init_state`, `step`.
        shared_embedding: Whether the decoder uses the word embedding of the encoder, for source and target texts in
            one language.

    Call arguments:
        inputs: Dict of `source` and `tokens`; the tokens start with the start token.
        return_dict: Whether to return the decoder's dict of `logits`, `attention` and more, plus the `memory`, instead
            of the logits.

    Returns:
        Logits `(batch, target, vocabulary)`: at each position, those of the next token. Or the dict.
    """

    def __init__(self, encoder, decoder, shared_embedding=False, **kwargs):
        super().__init__(**kwargs)
        self.encoder = encoder
        self.decoder = decoder
        self.shared_embedding = shared_embedding
        if shared_embedding:
            decoder.share_embedding(encoder.embedding)

    def build(self, inputs_shape):
        _check_inputs(inputs_shape)
        source_shape = inputs_shape["source"]
        with self._checked(source_shape):
            if not self.encoder.built:
                self.encoder.build(source_shape)
            if not self.decoder.built:
                self.decoder.build(inputs_shape["tokens"], self.encoder.compute_output_shape(source_shape))
        self.built = True

    def call(self, inputs, return_dict=False):
        _check_inputs(inputs)
        with self._checked(inputs["source"]):
            memory = self.encoder(inputs["source"])
        outputs = self.decoder(inputs["tokens"], memory, return_dict=return_dict)
        return {"memory": memory, **outputs} if return_dict else outputs

    def encode(self, source, training=False):
        """Encode a source into the memory that the decoder's `init_state` takes."""
        with self._checked(source):
            memory = self.encoder(source, training=training)
        if not self.decoder.built:
            self.decoder.build((None, None), keras.tree.map_structure(lambda tensor: tuple(tensor.shape), memory))
        return memory

    @contextlib.contextmanager
    def _checked(self, source):
        """Raise an error that says why a source is not a valid input of the encoder."""
        encoder = type(self.encoder).__name__
        if not isinstance(source, Mapping):
            raise ValueError(f"`source` must be the dict of tensors that {encoder} takes. Received: {source!r}")
        try:
            yield
        except KeyError as error:
            while isinstance(error.__context__, KeyError):  # Keras raises a copy with a longer message
                error = error.__context__
            if error.args[0] in source:
                raise
            raise ValueError(
                f"`source` must be a dict with `{error.args[0]}` for {encoder}. Received: a dict with the keys "
                f"{sorted(source)}"
            ) from None


def _check_inputs(inputs):
    if isinstance(inputs, Mapping) and {"source", "tokens"} <= set(inputs):
        if isinstance(inputs["tokens"], Mapping):
            raise ValueError(
                f"`tokens` must be a tensor of token ids `(batch, target)`. Received: a dict with the keys "
                f"{sorted(inputs['tokens'])}"
            )
        return
    received = f"a dict with the keys {sorted(inputs)}" if isinstance(inputs, Mapping) else f"{inputs!r}"
    raise ValueError(f"`inputs` must be a dict with `source` and `tokens`. Received: {received}")


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

    normalized = False  # whether `step` returns log-probabilities

    def call(self, tokens, memory, return_dict=False):
        rows, num_targets = flatten_targets(tokens)  # (R, T), R = B * N
        outputs, attention_state = self._teacher_force(rows, memory, num_targets)
        if not return_dict:
            return unflatten_targets(outputs["logits"], num_targets)
        outputs = {name: unflatten_targets(tensor, num_targets) for name, tensor in outputs.items()}
        return {**outputs, "attention_state": attention_state}

    def _teacher_force(self, tokens, memory, num_targets):
        """Return the outputs of all steps of `tokens` `(rows, target)`, and the final state of the attention layer.

        There are `num_targets` adjacent rows for each item of the memory, one if it is `None`.
        """
        raise NotImplementedError

    def init_state(self, memory, max_length=None):
        """Return the state before the first step: a dict of tensors with a batch axis, which a search can reorder.

        Args:
            memory: The encoder's dict.
            max_length: How many steps will follow at most, if known: the size of a cache.
        """
        raise NotImplementedError

    def step(self, token, state):
        """Map one token `(batch,)` and the state to logits `(batch, vocabulary)` and the next state."""
        outputs, state = self.step_with_attention(token, state)
        return outputs["logits"], state

    def step_with_attention(self, token, state):
        """Like `step`, but return a dict with `attention` and `features` next to the `logits`."""
        raise NotImplementedError

    def share_embedding(self, embedding):
        """Use the word embedding of an encoder instead of its own. Call it before anything is built."""
        expected = (self.embedding.input_dim, self.embedding.output_dim)
        received = (embedding.input_dim, embedding.output_dim)
        if expected != received:
            raise ValueError(f"A shared embedding must be of shape {expected}. Received: shape={received}")
        self.embedding = embedding

    def _known_ids(self, tokens):
        """Replace ids beyond the vocabulary, which are copied words, by the unknown word."""
        return ops.where(tokens >= self.vocabulary_size, UNKNOWN, tokens)


def repeat_for_targets(structure, num_targets):
    """Repeat every row of the tensors in a nested structure for each of its targets."""
    if num_targets is None:
        return structure
    return tree.map_structure(lambda tensor: ops.repeat(tensor, num_targets, axis=0), structure)


def flatten_targets(tokens):
    """Reshape `(batch, targets, target)` to `(batch * targets, target)`. Return the number of targets too."""
    if len(tokens.shape) == 2:
        return tokens, None
    num_targets = ops.shape(tokens)[1]
    return ops.reshape(tokens, (-1, ops.shape(tokens)[2])), num_targets


def unflatten_targets(tensor, num_targets):
    if num_targets is None or tensor is None:
        return tensor
    return ops.reshape(tensor, (-1, num_targets, *ops.shape(tensor)[1:]))
