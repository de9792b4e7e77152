"""An encoder and a decoder as one Keras model."""

import keras

from attention_apps.models.serialization import serialize_unbuilt


@keras.saving.register_keras_serializable(package="attention_apps")
class Seq2Seq(keras.Model):
    """Reads a source with an encoder, writes a target with a decoder: the one model of the library.

    Args:
        encoder: maps a source (a dict of tensors) to a memory (a dict of tensors).
        decoder: keeps the decoder's contract: `decoder(tokens, memory)`, `init_state`, `step`.
        shared_embedding: whether the decoder uses the encoder's word embedding, for texts in and out of one language.

    Call arguments:
        inputs: dict of `source` and `tokens`; the tokens begin with the start token.
        in_full: whether everything a loss can ask for comes back, a dict with `memory`, `logits`, `attention` and more,
            in place of the logits.

    Returns:
        Logits `(batch, time, vocabulary)`: at each position those of the next token.
    """

    def __init__(self, encoder, decoder, shared_embedding=False, **kwargs):
        super().__init__(**kwargs)
        self.encoder = encoder
        self.decoder = decoder
        self.shared_embedding = shared_embedding
        if shared_embedding:
            decoder.share_embedding(encoder.embedding)

    def build(self, inputs_shape):
        if not self.encoder.built:
            self.encoder.build(inputs_shape["source"])
        if not self.decoder.built:
            self.decoder.build(inputs_shape["tokens"], self.encoder.compute_output_shape(inputs_shape["source"]))
        self.built = True

    def call(self, inputs, in_full=False):
        memory = self.encoder(inputs["source"])
        if not in_full:
            return self.decoder(inputs["tokens"], memory)
        return {"memory": memory, **self.decoder.teacher_force(inputs["tokens"], memory)}

    def encode(self, source, training=False):
        """The memory of a source, on which the decoder can be stepped."""
        memory = self.encoder(source, training=training)
        if not self.decoder.built:
            self.decoder.build((None, None), keras.tree.map_structure(lambda tensor: tuple(tensor.shape), memory))
        return memory

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
