"""Attention mechanisms and blocks; importing this registers them for `keras.models.load_model`."""

from attention_apps.layers.additive_attention import AdditiveAttention
from attention_apps.layers.coverage_attention import CoverageAttention, coverage_loss
from attention_apps.layers.hard_attention import HardAttention
from attention_apps.layers.location_sensitive_attention import LocationSensitiveAttention
from attention_apps.layers.luong_attention import LuongAttention
from attention_apps.layers.monotonic_attention import MonotonicAttention
from attention_apps.layers.multi_head_attention import MultiHeadAttention
from attention_apps.layers.pyramidal_bidirectional_lstm import PyramidalBidirectionalLSTM
from attention_apps.layers.recurrent import Recurrent
from attention_apps.layers.rotary_position import RotaryPosition
from attention_apps.layers.scaled_dot_product_attention import ScaledDotProductAttention
from attention_apps.layers.sinusoidal_position_encoding import SinusoidalPositionEncoding
from attention_apps.layers.transformer_blocks import TransformerDecoderBlock, TransformerEncoderBlock

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
]
