"""Encoders, decoders and the model that joins them: tensors in, tensors out."""

from attention_apps.models.copying import PointerGenerator
from attention_apps.models.decoder_config import AttentionConfig, DecoderConfig
from attention_apps.models.encoders import Listener, TextEncoder
from attention_apps.models.image_encoder import ImageEncoder
from attention_apps.models.moonshine_decoder import MoonshineDecoder
from attention_apps.models.moonshine_encoder import MoonshineEncoder
from attention_apps.models.recurrent_decoder import RecurrentDecoder
from attention_apps.models.seq2seq import Seq2Seq
from attention_apps.models.transformer import TransformerDecoder, TransformerEncoder

__all__ = [
    "Seq2Seq",
    "TextEncoder",
    "ImageEncoder",
    "Listener",
    "MoonshineEncoder",
    "RecurrentDecoder",
    "TransformerDecoder",
    "MoonshineDecoder",
    "PointerGenerator",
    "DecoderConfig",
    "AttentionConfig",
    "TransformerEncoder",
]
