"""Moonshine models of KerasHub, converted to our Moonshine. The result needs nothing of KerasHub."""

import os
import unicodedata
from dataclasses import replace
from functools import cached_property
from typing import Any

import keras
import numpy as np

from attention_apps.applications.recognition.config import (
    MoonshineConfig,
    RecognizerConfig,
    SpeechDecodingOptions,
    TranscriptOptions,
)
from attention_apps.checks import require
from attention_apps.constants import SPECIAL_TOKENS
from attention_apps.models import MoonshineDecoder, MoonshineEncoder
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.training.config import TrainingConfig

_MAX_WAVELENGTH = 10_000
# Heads of Moonshine-tiny, the sizes that `MoonshineConfig` has by default, whose attention follows the recording.
_TINY_ALIGNMENT_HEADS = ((3, 6), (3, 5), (4, 3), (4, 1))
# A byte that no transcript has. Our unknown token takes its place.
_ZERO_BYTE = "<0x00>"


class HubMoonshine:
    """A `MoonshineAudioToText` of KerasHub.

    Args:
        model: the model with its preprocessor, or the name or folder of its preset.
    """

    def __init__(self, model: Any):
        import keras_hub

        if isinstance(model, str | os.PathLike):
            model = keras_hub.models.MoonshineAudioToText.from_preset(os.fspath(model))
        if not isinstance(model, keras_hub.models.MoonshineAudioToText):
            received = type(model).__name__
            raise TypeError(f"`model` must be a `MoonshineAudioToText` of KerasHub, or a preset. Received: {received}")
        if model.preprocessor is None:
            raise ValueError("`model` must have its preprocessor, which holds the tokenizer. Received: None")
        self.backbone = model.backbone
        self.tokenizer = model.preprocessor.tokenizer
        _check_supported(self.backbone)

    def config(self, config: RecognizerConfig | None) -> RecognizerConfig:
        """Return a configuration, by default one for transcripts of any length, with the sizes of the model."""
        backbone, config = self.backbone, config or _default_config()
        given = config.moonshine or MoonshineConfig()
        moonshine = replace(
            given,
            dim=backbone.hidden_dim,
            encoder_layers=backbone.encoder_num_layers,
            decoder_layers=backbone.decoder_num_layers,
            num_heads=backbone.encoder_num_heads,
            hidden_dim=int(backbone.hidden_dim * backbone.feedforward_expansion_factor),
            rotary_dim=self._rotary_dim,
            max_length=min(given.max_length, backbone.max_position_embeddings),
        )
        if moonshine == MoonshineConfig():
            moonshine = replace(moonshine, alignment_heads=_TINY_ALIGNMENT_HEADS)
        return replace(config, moonshine=moonshine)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The sub-words of the tokenizer. The model may have more rows of embeddings; these are never written."""
        names = ((index, self.tokenizer.id_to_token(index)) for index in self._hub_ids[len(SPECIAL_TOKENS) :])
        return Vocabulary(name if _is_usable(name) else f"<unused_{index}>" for index, name in names)

    def copy_weights(self, encoder: MoonshineEncoder, decoder: MoonshineDecoder) -> None:
        """Copy the weights to layers with the sizes of `config` and `vocabulary`."""
        hub = self.backbone
        for convolution, hub_convolution in zip(encoder.convolutions, (hub.conv1, hub.conv2, hub.conv3), strict=True):
            convolution.set_weights(hub_convolution.get_weights())
        encoder.group_scale.assign(_array(hub.group_norm.gamma))
        encoder.group_offset.assign(_array(hub.group_norm.beta))
        for block, hub_block in zip(encoder.blocks, hub.encoder_blocks, strict=True):
            self._copy_self_attention(block.attention, hub_block.self_attention_layer)
            block.up.set_weights(hub_block.feedforward.dense_1.get_weights())
            block.down.set_weights(hub_block.feedforward.dense_2.get_weights())
            block.attention_norm.set_weights(hub_block.self_attention_layer_norm.get_weights())
            block.feed_forward_norm.set_weights(hub_block.feedforward_layer_norm.get_weights())
        encoder.norm.set_weights(hub.encoder_final_layer_norm.get_weights())
        decoder.embedding.assign(_array(hub.token_embedding.embeddings)[self._hub_ids].T)
        for block, hub_block in zip(decoder.blocks, hub.decoder_blocks, strict=True):
            self._copy_self_attention(block.self_attention, hub_block.self_attention)
            query, key, value, output = _matrices(hub_block.cross_attention)
            block.cross_attention.query_dense.set_weights([query])
            block.cross_attention.key_value.set_weights([np.concatenate([key, value], axis=1)])
            block.cross_attention.output_dense.set_weights([output])
            block.up.set_weights(hub_block.ff.dense_1.get_weights())
            block.down.set_weights(hub_block.ff.dense_2.get_weights())
            block.self_norm.set_weights(hub_block.norm1.get_weights())
            block.cross_norm.set_weights(hub_block.norm2.get_weights())
            block.feed_forward_norm.set_weights(hub_block.norm3.get_weights())
        decoder.norm.set_weights(hub.decoder_post_norm.get_weights())

    @cached_property
    def _hub_ids(self) -> list[int]:
        """The model's id for each of ours. With the sub-words of Llama, Moonshine's own, all ids stay the same."""
        tokenizer = self.tokenizer
        ids = range(tokenizer.vocabulary_size())
        unknown = next((index for index in ids if tokenizer.id_to_token(index) == _ZERO_BYTE), tokenizer.pad_token_id)
        special = [tokenizer.pad_token_id, tokenizer.start_token_id, tokenizer.end_token_id, unknown]
        return [*special, *(index for index in ids if index not in special)]

    @property
    def _rotary_dim(self) -> int:
        return 2 * self.backbone.decoder_rotary_embedding.inv_freq.shape[0]

    def _copy_self_attention(self, attention, hub_attention):
        """KerasHub rotates neighboring features, `RotaryPosition` the two halves: the columns are reordered."""
        query, key, value, output = _matrices(hub_attention)
        heads = self.backbone.encoder_num_heads
        head_dim = query.shape[1] // heads
        neighbors = np.arange(self._rotary_dim).reshape(-1, 2)
        order = np.concatenate([neighbors.T.ravel(), np.arange(self._rotary_dim, head_dim)])
        columns = (np.arange(heads)[:, np.newaxis] * head_dim + order).ravel()
        attention.query_key_value.set_weights([np.concatenate([query[:, columns], key[:, columns], value], axis=1)])
        attention.output_dense.set_weights([output])


def _default_config() -> RecognizerConfig:
    return RecognizerConfig(
        decoding=SpeechDecodingOptions(max_length=195, min_length=2, ctc_weight=0.0),
        output=TranscriptOptions(min_confidence=0.15),
        training=TrainingConfig(
            batch_size=16, max_batch_length=80.0, learning_rate=2e-5, warmup_steps=100, schedule="linear"
        ),
        case="keep",
        punctuation=True,
        max_seconds=30.0,
    )


def _check_supported(backbone: Any) -> None:
    """Raise an error for a model that ours cannot compute."""
    supported = {
        "filter_dim": backbone.hidden_dim,
        "decoder_num_heads": backbone.encoder_num_heads,
        "encoder_use_swiglu_activation": False,
        "decoder_use_swiglu_activation": True,
        "attention_bias": False,
    }
    for name, value in supported.items():
        require(getattr(backbone, name) == value, name, str(value), getattr(backbone, name))
    head_dim, multiple = backbone.hidden_dim // backbone.encoder_num_heads, backbone.pad_head_dim_to_multiple_of
    require(head_dim % (multiple or 1) == 0, "pad_head_dim_to_multiple_of", f"a divisor of {head_dim}", multiple)
    for rotary in (backbone.encoder_rotary_embedding, backbone.decoder_rotary_embedding):
        found = _array(rotary.inv_freq)
        expected = _MAX_WAVELENGTH ** -(np.arange(len(found)) / len(found))
        require(np.allclose(found, expected, rtol=1e-2), "rope_theta", str(_MAX_WAVELENGTH), backbone.rope_theta)


def _is_usable(name: str) -> bool:
    """Whether a vocabulary can hold a sub-word: pieces of program code have line breaks."""
    return name not in SPECIAL_TOKENS and not any(unicodedata.category(letter) in ("Cc", "Zl", "Zp") for letter in name)


def _matrices(attention: Any) -> list[np.ndarray]:
    """Query, key, value and output of an attention layer as matrices of `(inputs, outputs)`."""
    names = ("_query_dense", "_key_dense", "_value_dense")
    inputs = [_array(getattr(attention, name).kernel) for name in names]  # (dim, heads, head dim)
    output = _array(attention._output_dense.kernel)  # (heads, head dim, dim)
    return [*(kernel.reshape(len(kernel), -1) for kernel in inputs), output.reshape(-1, output.shape[-1])]


def _array(weight: Any) -> np.ndarray:
    return keras.ops.convert_to_numpy(keras.ops.cast(weight, "float32"))
