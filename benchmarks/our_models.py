"""The workloads' models as this library makes them, and their weights as arrays."""

import keras
import numpy as np
from workloads import NEVER_WRITTEN, TransformerWorkload, Workload

from attention_apps.layers import AdditiveAttention, LocationSensitiveAttention
from attention_apps.models import (
    Listener,
    PointerGenerator,
    RecurrentDecoder,
    Seq2Seq,
    TextEncoder,
    TransformerDecoder,
    TransformerEncoder,
)


class GivenRegions(keras.layers.Layer):
    """The features of an image, extracted beforehand, as a memory."""

    def call(self, source):
        return {"values": source["features"]}

    def compute_output_shape(self, source_shape):
        return {"values": source_shape["features"]}


def make_model(workload: Workload) -> Seq2Seq:
    make_parts = {"captioner": _captioner, "recognizer": _recognizer, "summarizer": _summarizer}
    encoder, decoder = make_parts[workload.application](workload)
    is_text = workload.application == "summarizer"
    model = Seq2Seq(encoder, decoder, shared_embedding=is_text, name="model")
    model.build({"source": _source_shape(workload), "tokens": (None, None)})
    return model


def make_input_feeding_model(workload: Workload) -> Seq2Seq:
    """A given memory and the decoder of Luong et al. 2015 with additive attention, as in JoeyNMT."""
    decoder = RecurrentDecoder(
        workload.vocabulary,
        workload.embedding_dim,
        workload.units,
        attention=AdditiveAttention(workload.attention_units, name="attention"),
        attend="after",
        input_feeding=True,
        initial_state="zeros",
        name="decoder",
    )
    model = Seq2Seq(GivenRegions(name="encoder"), decoder, name="model")
    model.build({"source": _source_shape(workload), "tokens": (None, None)})
    return model


def make_transformer(workload: TransformerWorkload) -> Seq2Seq:
    """A Transformer with one embedding for all, which never writes the tokens that are not words."""
    sizes = (workload.vocabulary, workload.width, workload.layers, workload.heads, workload.hidden_dim)
    encoder, decoder = TransformerEncoder(*sizes, name="encoder"), TransformerDecoder(*sizes, name="decoder")
    model = Seq2Seq(encoder, decoder, shared_embedding=True, name="model")
    model.build({"source": {"token_ids": (None, None)}, "tokens": (None, None)})
    is_word = ~np.isin(np.arange(workload.vocabulary), NEVER_WRITTEN)
    decoder.output_bias.assign(np.where(is_word, 0.0, -1e4))
    return model


def trainable_arrays(model: Seq2Seq, values: list | None = None) -> dict[str, np.ndarray]:
    """Weights by name, or anything else that there is one of for each weight that learns, their gradients say."""
    variables = model.trainable_variables
    values = variables if values is None else values
    names = [variable.path.removeprefix("model/").removeprefix("pointer/") for variable in variables]
    pairs = zip(names, values, strict=True)
    return {name: keras.ops.convert_to_numpy(value) for name, value in pairs if value is not None}


def _captioner(workload):
    decoder = RecurrentDecoder(
        workload.vocabulary,
        workload.embedding_dim,
        workload.units,
        attention=AdditiveAttention(workload.attention_units, name="attention"),
        context_gate="scalar",
        deep_output=True,
        tied_embeddings=True,
        name="decoder",
    )
    return GivenRegions(name="encoder"), decoder


def _recognizer(workload):
    attention = LocationSensitiveAttention(
        workload.attention_units, workload.location_filters, workload.location_width, name="attention"
    )
    decoder = RecurrentDecoder(
        workload.vocabulary, workload.embedding_dim, workload.units, attention=attention, name="decoder"
    )
    encoder = Listener(
        workload.vocabulary,
        workload.encoder_units,
        workload.encoder_layers,
        filters=workload.encoder_filters,
        name="encoder",
    )
    return encoder, decoder


def _summarizer(workload):
    decoder = RecurrentDecoder(
        workload.vocabulary,
        workload.embedding_dim,
        workload.units,
        attention=AdditiveAttention(workload.attention_units, name="attention"),
        attend="after",
        tied_embeddings=True,
        initial_state="last",
        name="decoder",
    )
    encoder = TextEncoder(
        workload.vocabulary,
        workload.embedding_dim,
        workload.encoder_units,
        workload.encoder_layers,
        name="encoder",
    )
    return encoder, PointerGenerator(decoder, name="pointer")


def _source_shape(workload):
    if workload.application == "summarizer":
        return {"token_ids": (None, None), "source_ids": (None, None)}
    features = {"features": (None, None, workload.source_dim)}
    return features if workload.application == "captioner" else {**features, "mask": (None, None)}


def sharpen(model: Seq2Seq, factor: float = 10.0) -> None:
    """Gives an untrained model clear preferences, so that all contenders break ties the same way."""
    names = ("embedding/embeddings", "readout/output/kernel")
    variables = [variable for variable in model.trainable_variables if variable.path.endswith(names)]
    for variable in variables:
        variable.assign(variable * factor)
