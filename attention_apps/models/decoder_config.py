"""The decoder and its attention as a few lines of configuration."""

from dataclasses import dataclass, field
from typing import Literal

from attention_apps import layers
from attention_apps.models.pointer_generator import PointerGenerator
from attention_apps.models.recurrent_decoder import RecurrentDecoder
from attention_apps.models.transformer_decoder import TransformerDecoder


@dataclass(frozen=True)
class AttentionConfig:
    """Which attention layer, and its sizes; what a layer has no use for is ignored."""

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
    # Of "luong".
    score: Literal["dot", "general", "concat"] = "general"
    window: Literal["global", "local-m", "local-p"] = "global"
    half_width: int = 10
    # Of "location_sensitive": the convolution over the weights before.
    filters: int = 10
    kernel_size: int = 31
    # One position at a time in place of a mean over all, and how it learns (Xu et al. 2015, section 4.1).
    hard: bool = False
    estimator: Literal["reinforce", "gumbel", "straight_through"] = "reinforce"
    reward_weight: float = 1.0
    entropy_weight: float = 0.01
    temperature: float = 1.0

    def __post_init__(self) -> None:
        for name in ("units", "num_heads", "half_width", "filters", "kernel_size"):
            _check_size(name, getattr(self, name), 4096)


@dataclass(frozen=True)
class DecoderConfig:
    """A recurrent or a Transformer decoder; `dropout`, `num_layers` and `copying` are for both."""

    kind: Literal["recurrent", "transformer"] = "recurrent"
    # Width of the embeddings, and of the Transformer.
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
    # Whether words of the source can be copied (See et al. 2017).
    copying: bool = False
    # Of the Transformer: heads of its attention, width of its feed-forward layers, the longest target.
    num_heads: int = 4
    hidden_dim: int = 1024
    max_length: int = 512

    def __post_init__(self) -> None:
        for name in ("embedding_dim", "units", "hidden_dim", "max_length"):
            _check_size(name, getattr(self, name), 8192)
        for name in ("num_layers", "num_heads"):
            _check_size(name, getattr(self, name), 64)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"`dropout` must be at least 0 and less than 1. Received: dropout={self.dropout}")
        if self.kind == "transformer" and self.attention.hard:
            raise ValueError(
                "`attention.hard` must be false for a Transformer, which has attention of its own. Received: "
                "kind='transformer', attention.hard=True"
            )

    def fewest_weights(self, vocabulary_size: int) -> int:
        """How many weights the decoder has at least, known without making it."""
        embedding = vocabulary_size * self.embedding_dim
        if self.kind == "transformer":
            return embedding + self.num_layers * self.embedding_dim * (self.embedding_dim + self.hidden_dim)
        return embedding + 3 * self.num_layers * self.units**2


def make_attention(config: AttentionConfig):
    """The attention layer of a configuration, `None` for kind "none"; by its fixed name saved weights are found."""
    name = "attention"
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


def make_decoder(config: DecoderConfig, vocabulary_size: int):
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


def _check_size(name: str, value: int, largest: int) -> None:
    """Bounds that no sensible model reaches, so that a hostile configuration allocates nothing."""
    if not 1 <= value <= largest:
        raise ValueError(f"`{name}` must be between 1 and {largest}. Received: {name}={value}")
