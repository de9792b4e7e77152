"""Attention mechanisms and blocks; importing this registers them for `keras.models.load_model`."""

from attention_apps.layers.additive_attention import AdditiveAttention
from attention_apps.layers.coverage_attention import CoverageAttention, LocationSensitiveAttention, coverage_loss
from attention_apps.layers.dot_product_attention import MultiHeadAttention, ScaledDotProductAttention
from attention_apps.layers.hard_attention import HardAttention, MonotonicAttention
from attention_apps.layers.luong_attention import LuongAttention
from attention_apps.layers.recurrent import PyramidalBidirectionalLSTM, Recurrent
from attention_apps.layers.sequence_ops import length_mask
from attention_apps.layers.transformer import (
    RotaryPosition,
    SinusoidalPositionEncoding,
    TransformerDecoderBlock,
    TransformerEncoderBlock,
)

__all__ = [
    "AdditiveAttention",
    "LuongAttention",
    "ScaledDotProductAttention",
    "MultiHeadAttention",
    "LocationSensitiveAttention",
    "CoverageAttention",
    "coverage_loss",
    "MonotonicAttention",
    "HardAttention",
    "Recurrent",
    "PyramidalBidirectionalLSTM",
    "TransformerEncoderBlock",
    "TransformerDecoderBlock",
    "SinusoidalPositionEncoding",
    "RotaryPosition",
    "length_mask",
]
