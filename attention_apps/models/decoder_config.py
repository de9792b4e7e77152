"""The configuration of a decoder and its attention."""

from dataclasses import dataclass, field
from typing import Literal

import keras

from attention_apps import layers
from attention_apps.checks import require_between, require_fraction
from attention_apps.models.copying import PointerGenerator
from attention_apps.models.recurrent_decoder import RecurrentDecoder
from attention_apps.models.transformer import TransformerDecoder


@dataclass(frozen=True)
class AttentionConfig:
    """The kind of attention layer and its options. A layer ignores the options of other kinds."""

    kind: Literal[
        "none",
        "additive",
        "luong",
        "scaled_dot_product",
        "multi_head",
        "location_sensitive",
        "coverage",
        "monotonic",
    ] = "additive"
    units: int = 256
    num_heads: int = 4
    # For "luong".
    score: Literal["dot", "general", "concat"] = "general"
    window: Literal["global", "local-m", "local-p"] = "global"
    half_width: int = 10
    # For "location_sensitive": the convolution over the previous weights.
    filters: int = 10
    kernel_size: int = 31
    # Hard attention, one position at a time, and its estimator (Xu et al. 2015, section 4.1).
    hard: bool = False
    estimator: Literal["reinforce", "gumbel", "straight_through"] = "reinforce"
    reward_weight: float = 1.0
    entropy_weight: float = 0.01
    temperature: float = 1.0

    def __post_init__(self) -> None:
        # No sensible model reaches these bounds. They keep a hostile configuration from allocating memory.
        require_between(self, 1, 4096, "units", "num_heads", "half_width", "filters", "kernel_size")


@dataclass(frozen=True)
class DecoderConfig:
    """A recurrent or a Transformer decoder; `dropout`, `num_layers` and `copying` apply to both."""

    kind: Literal["recurrent", "transformer"] = "recurrent"
    # Width of the embeddings and of the Transformer.
    embedding_dim: int = 256
    units: int = 512
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    cell: Literal["lstm", "gru"] = "lstm"
    num_layers: int = 1
    attend: Literal["before", "after"] = "before"
    input_feeding: bool = False
    context_gate: Literal["scalar", "vector"] | None = None
    deep_output: bool = False
    tied_embeddings: bool = False
    dropout: float = 0.0
    variational: bool = False
    initial_state: Literal["mean", "last", "zeros"] = "mean"
    # Whether the decoder can copy words of the source (See et al. 2017).
    copying: bool = False
    # For the Transformer: attention heads, width of the feed-forward layers, longest target.
    num_heads: int = 4
    hidden_dim: int = 1024
    max_length: int = 512

    def __post_init__(self) -> None:
        require_between(self, 1, 8192, "embedding_dim", "units", "hidden_dim", "max_length")
        require_between(self, 1, 64, "num_layers", "num_heads")
        require_fraction(self, "dropout")
        if self.kind == "transformer" and self.attention.hard:
            raise ValueError(
                "`attention.hard` must be false for a Transformer, which has attention of its own. Received: "
                "kind='transformer', attention.hard=True"
            )

    def min_parameters(self, vocabulary_size: int) -> int:
        """A lower bound of the number of parameters, computed without creating the decoder."""
        embedding = vocabulary_size * self.embedding_dim
        if self.kind == "transformer":
            return embedding + self.num_layers * self.embedding_dim * (self.embedding_dim + self.hidden_dim)
        return embedding + 3 * self.num_layers * self.units**2


def make_attention(config: AttentionConfig) -> keras.layers.Layer | None:
    """The attention layer of a configuration, or `None` for kind "none"."""
    name = "attention"  # saved weights are found by this name
    makers = {
        "none": lambda: None,
        "additive": lambda: layers.AdditiveAttention(config.units, name=name),
        "luong": lambda: layers.LuongAttention(
            score=config.score,
            window=config.window,
            half_width=config.half_width,
            units=config.units if config.score == "concat" else None,
            name=name,
        ),
        "scaled_dot_product": lambda: layers.ScaledDotProductAttention(name=name),
        "multi_head": lambda: layers.MultiHeadAttention(config.num_heads, config.units // config.num_heads, name=name),
        "location_sensitive": lambda: layers.LocationSensitiveAttention(
            config.units, filters=config.filters, kernel_size=config.kernel_size, name=name
        ),
        "coverage": lambda: layers.CoverageAttention(config.units, name=name),
        "monotonic": lambda: layers.MonotonicAttention(config.units, name=name),
    }
    attention = makers[config.kind]()
    if not config.hard or attention is None:
        return attention
    return layers.HardAttention(
        attention,
        estimator=config.estimator,
        reward_weight=config.reward_weight,
        entropy_weight=config.entropy_weight,
        temperature=config.temperature,
        name="hard_attention",
    )


def make_decoder(
    config: DecoderConfig, vocabulary_size: int
) -> RecurrentDecoder | TransformerDecoder | PointerGenerator:
    """The decoder of a configuration."""
    if config.kind == "recurrent":
        names = (
            "cell num_layers attend input_feeding context_gate deep_output tied_embeddings dropout variational "
            "initial_state"
        )
        decoder = RecurrentDecoder(
            vocabulary_size,
            config.embedding_dim,
            config.units,
            attention=make_attention(config.attention),
            name="decoder",
            **{name: getattr(config, name) for name in names.split()},
        )
    else:
        decoder = TransformerDecoder(
            vocabulary_size,
            config.embedding_dim,
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            hidden_dim=config.hidden_dim,
            max_length=config.max_length,
            dropout=config.dropout,
            name="decoder",
        )
    return PointerGenerator(decoder, name="pointer_generator") if config.copying else decoder
