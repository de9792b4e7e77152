"""Speech recognition by Moonshine, or by Listen, Attend and Spell."""

import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Self, overload

import keras
import numpy as np

from attention_apps.applications.application import Application
from attention_apps.applications.parts import Parts
from attention_apps.applications.recognition.codec import LetterCodec, SubWordCodec
from attention_apps.applications.recognition.config import (
    MoonshineConfig,
    RecognizerConfig,
    SpeechDecodingOptions,
    TranscriptOptions,
)
from attention_apps.applications.recognition.examples import SpeechExamples, SubWordExamples
from attention_apps.applications.recognition.reader import AudioReader
from attention_apps.applications.recognition.transcript import Transcript
from attention_apps.checks import require
from attention_apps.constants import SPECIAL_TOKENS
from attention_apps.models import Listener, MoonshineDecoder, MoonshineEncoder, Seq2Seq
from attention_apps.models.decoder_config import make_decoder
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.training.config import TrainingConfig

Recording = str | PathLike | bytes | tuple[np.ndarray, float]


class SpeechRecognizer(Application[RecognizerConfig]):
    """Writes down what is said in a recording, and when each word was said.

    The configuration chooses between two kinds of models. Moonshine, the default preset, reads the waveform and writes
    sub-words, with case and punctuation. Listen, Attend and Spell reads log-mel features and spells; attention and CTC
    share its listener, and the search finds the text that both agree on.

    A recording longer than `max_seconds` of the configuration is cut at pauses. Silence, noise and recordings of less
    than a tenth of a second have an empty text; see `TranscriptOptions.min_confidence`.

    Example:
        recognizer = SpeechRecognizer.from_preset()
        transcript = recognizer.transcribe("call.wav")
        transcript.text, transcript.words   # ("Go.", [SpokenWord("Go.", 0.31, 0.62, 0.97)])

    Reference:
        Jeffries et al. 2024, "Moonshine: Speech Recognition for Live Transcription and Voice Commands".
        Chan et al. 2016, "Listen, Attend and Spell"; Chorowski et al. 2015, "Attention-Based Models for Speech
        Recognition"; Hori et al. 2017, "Joint CTC/Attention Decoding for End-to-End Speech Recognition".
    """

    task = "speech_recognition"
    config_class = RecognizerConfig
    default_preset = "moonshine_tiny_english"

    def __init__(self, config: RecognizerConfig | None = None, vocabulary: Vocabulary | None = None):
        is_moonshine = config is not None and config.moonshine is not None
        super().__init__(config, vocabulary, MOONSHINE if is_moonshine else LISTEN_ATTEND_SPELL)

    @classmethod
    def from_keras_hub(cls, model: Any, config: RecognizerConfig | None = None) -> Self:
        """Make a recognizer from a Moonshine of KerasHub, with our search, word times, training and export.

        The weights are copied, so that `save` writes a preset of this package, which loads without KerasHub.

        Args:
            model: a `MoonshineAudioToText` with its preprocessor, or the name or folder of its preset, such as
                `"moonshine_base_en"`.
            config: by default texts keep case and punctuation, and the confidence is not calibrated. The sizes in
                `config.moonshine` are replaced by those of the model. `alignment_heads` are known for Moonshine-tiny
                only; without them, times of words come from all heads of the last layer.
        """
        hub = HubMoonshine(model)
        recognizer = cls(hub.config(config), hub.vocabulary)
        hub.copy_weights(recognizer.model.encoder, recognizer.model.decoder)
        return recognizer

    @overload
    def transcribe(self, recordings: Recording, quiet: bool = False, **options: Any) -> Transcript: ...

    @overload
    def transcribe(self, recordings: Sequence[Recording], quiet: bool = False, **options: Any) -> list[Transcript]: ...

    def transcribe(
        self, recordings: Recording | Sequence[Recording], quiet: bool = False, **options: Any
    ) -> Transcript | list[Transcript]:
        """Transcribe one recording, or each of a list: paths, the bytes of files, or pairs `(samples, rate)`.

        A single recording that cannot be read raises an error; in a list it gets a transcript with its `error`.

        Args:
            quiet: whether a long recording shows no progress bar.
            options: of the search and the output, as keywords: `beam_size=3, min_confidence=0`.
        """
        is_pair = isinstance(recordings, tuple) and len(recordings) == 2 and isinstance(recordings[0], np.ndarray)
        is_one = is_pair or not isinstance(recordings, list | tuple)
        return self.answer(recordings, options, quiet, is_one)

    def fit_language_model(self, texts: Iterable[str], order: int = 6) -> None:
        """Count the n-grams of letters of texts; searches with a `language_model_weight` use them.

        The model knows the letters of the recognizer, and is saved with it.
        """
        self._check_trained()
        if not isinstance(self.codec, LetterCodec):
            raise ValueError("A language model is for recognizers that write letters. This one writes sub-words.")
        self.codec.fit_language_model(texts, order)
        self._pipelines = {}


def make_listener_and_speller(config: RecognizerConfig, vocabulary: Vocabulary) -> Seq2Seq:
    """Build Listen, Attend and Spell."""
    size = len(vocabulary)
    encoder = Listener(
        size,
        units=config.encoder.units,
        num_layers=config.encoder.num_layers,
        front_end=config.encoder.front_end,
        filters=config.encoder.filters,
        dropout=config.encoder.dropout,
        name="encoder",
    )
    model = Seq2Seq(encoder, make_decoder(config.decoder, size))
    mels = config.features.num_mels
    model.build({"source": {"features": (None, None, mels), "mask": (None, None)}, "tokens": (None, None)})
    return model


def make_moonshine(config: RecognizerConfig, vocabulary: Vocabulary) -> Seq2Seq:
    """Build Moonshine."""
    sizes = config.moonshine
    assert sizes is not None
    shared = {
        "dim": sizes.dim,
        "num_heads": sizes.num_heads,
        "hidden_dim": sizes.hidden_dim,
        "rotary_dim": sizes.rotary_dim,
        "dropout": sizes.dropout,
    }
    decoder = MoonshineDecoder(
        len(vocabulary),
        num_layers=sizes.decoder_layers,
        max_length=sizes.max_length,
        max_tokens_per_frame=sizes.tokens_per_second * SubWordCodec.frame_seconds,
        alignment_heads=sizes.alignment_heads,
        name="decoder",
        **shared,
    )
    model = Seq2Seq(MoonshineEncoder(num_layers=sizes.encoder_layers, name="encoder", **shared), decoder)
    model.build({"source": {"waveform": (None, None), "lengths": (None,)}, "tokens": (None, None)})
    return model


LISTEN_ATTEND_SPELL = Parts(
    reader=AudioReader,
    codec=LetterCodec,
    model=make_listener_and_speller,
    examples=SpeechExamples,
    extra_loss=lambda config: config.ctc,
)
MOONSHINE = Parts(reader=AudioReader, codec=SubWordCodec, model=make_moonshine, examples=SubWordExamples)


_MAX_WAVELENGTH = 10_000
# Heads of Moonshine-tiny, the sizes that `MoonshineConfig` has by default, whose attention follows the recording.
_TINY_ALIGNMENT_HEADS = ((3, 6), (3, 5), (4, 3), (4, 1))
# A byte that no transcript has. Our unknown token takes its place.
_ZERO_BYTE = "<0x00>"


_DEFAULT_CONFIG = RecognizerConfig(
    decoding=SpeechDecodingOptions(max_length=195, min_length=2, ctc_weight=0.0),
    output=TranscriptOptions(min_confidence=0.15),
    training=TrainingConfig(
        batch_size=16, max_batch_length=80.0, learning_rate=2e-5, warmup_steps=100, schedule="linear"
    ),
    case="keep",
    punctuation=True,
    max_seconds=30.0,
)


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
        self.tokenizer = tokenizer = model.preprocessor.tokenizer
        _check_supported(self.backbone)
        # The model's id for each of ours. With the sub-words of Llama, Moonshine's own, all ids stay the same.
        ids = range(tokenizer.vocabulary_size())
        zero = next((index for index in ids if tokenizer.id_to_token(index) == _ZERO_BYTE), tokenizer.pad_token_id)
        special = [tokenizer.pad_token_id, tokenizer.start_token_id, tokenizer.end_token_id, zero]
        self.hub_ids = [*special, *(index for index in ids if index not in special)]
        # The sub-words of the tokenizer. The model may have more rows of embeddings; these are never written.
        names = ((index, tokenizer.id_to_token(index)) for index in self.hub_ids[len(SPECIAL_TOKENS) :])
        self.vocabulary = Vocabulary(
            f"<unused_{index}>"  # a vocabulary cannot hold the line breaks of pieces of program code
            if name in SPECIAL_TOKENS or any(unicodedata.category(letter) in ("Cc", "Zl", "Zp") for letter in name)
            else name
            for index, name in names
        )

    def config(self, config: RecognizerConfig | None) -> RecognizerConfig:
        """Return a configuration, by default one for transcripts of any length, with the sizes of the model."""
        backbone, config = self.backbone, config or _DEFAULT_CONFIG
        given = config.moonshine or MoonshineConfig()
        moonshine = replace(
            given,
            dim=backbone.hidden_dim,
            encoder_layers=backbone.encoder_num_layers,
            decoder_layers=backbone.decoder_num_layers,
            num_heads=backbone.encoder_num_heads,
            hidden_dim=int(backbone.hidden_dim * backbone.feedforward_expansion_factor),
            rotary_dim=2 * backbone.decoder_rotary_embedding.inv_freq.shape[0],
            max_length=min(given.max_length, backbone.max_position_embeddings),
        )
        if moonshine == MoonshineConfig():
            moonshine = replace(moonshine, alignment_heads=_TINY_ALIGNMENT_HEADS)
        return replace(config, moonshine=moonshine)

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
        decoder.embedding.assign(_array(hub.token_embedding.embeddings)[self.hub_ids].T)
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

    def _copy_self_attention(self, attention, hub_attention):
        """KerasHub rotates neighboring features, `RotaryPosition` the two halves: the columns are reordered."""
        query, key, value, output = _matrices(hub_attention)
        heads = self.backbone.encoder_num_heads
        head_dim = query.shape[1] // heads
        rotary_dim = 2 * self.backbone.decoder_rotary_embedding.inv_freq.shape[0]
        neighbors = np.arange(rotary_dim).reshape(-1, 2)
        order = np.concatenate([neighbors.T.ravel(), np.arange(rotary_dim, head_dim)])
        columns = (np.arange(heads)[:, np.newaxis] * head_dim + order).ravel()
        attention.query_key_value.set_weights([np.concatenate([query[:, columns], key[:, columns], value], axis=1)])
        attention.output_dense.set_weights([output])


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


def _matrices(attention: Any) -> list[np.ndarray]:
    """Query, key, value and output of an attention layer as matrices of `(inputs, outputs)`."""
    names = ("_query_dense", "_key_dense", "_value_dense")
    inputs = [_array(getattr(attention, name).kernel) for name in names]  # (dim, heads, head dim)
    output = _array(attention._output_dense.kernel)  # (heads, head dim, dim)
    return [*(kernel.reshape(len(kernel), -1) for kernel in inputs), output.reshape(-1, output.shape[-1])]


def _array(weight: Any) -> np.ndarray:
    return keras.ops.convert_to_numpy(keras.ops.cast(weight, "float32"))
