"""An encoder and a decoder as one Keras model."""

import contextlib
from collections.abc import Mapping

import keras

from attention_apps.models.decoder import serialize_unbuilt


@keras.saving.register_keras_serializable(package="attention_apps")
class Seq2Seq(keras.Model):
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
        """Encodes a source into the memory that the decoder's `init_state` takes."""
        with self._checked(source):
            memory = self.encoder(source, training=training)
        if not self.decoder.built:
            self.decoder.build((None, None), keras.tree.map_structure(lambda tensor: tuple(tensor.shape), memory))
        return memory

    @contextlib.contextmanager
    def _checked(self, source):
        """Raises an error that says why a source is not a valid input of the encoder."""
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

    def get_config(self):
        return {
            **super().get_config(),
            "encoder": serialize_unbuilt(self.encoder),
            "decoder": serialize_unbuilt(self.decoder),
            "shared_embedding": self.shared_embedding,
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        for part in ("encoder", "decoder"):
            config[part] = keras.saving.deserialize_keras_object(config[part])
        return cls(**config)


def _check_inputs(inputs):
    if isinstance(inputs, Mapping) and {"source", "tokens"} <= set(inputs):
        return
    received = f"a dict with the keys {sorted(inputs)}" if isinstance(inputs, Mapping) else f"{inputs!r}"
    raise ValueError(f"`inputs` must be a dict with `source` and `tokens`. Received: {received}")
