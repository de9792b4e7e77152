"""The configuration of a summarizer."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from attention_apps.applications.outputs import FRACTION, ConfidenceConfig, Limited
from attention_apps.applications.parts import OutputOptions
from attention_apps.checks import require_at_least
from attention_apps.decoding import DecodingOptions
from attention_apps.models.decoder_config import AttentionConfig, DecoderConfig
from attention_apps.training.config import TrainingConfig


@dataclass(frozen=True)
class TextEncoderConfig(Limited):
    """The network that reads the text; see `TextEncoder` and `TransformerEncoder`."""

    # Defaults to the decoder's kind, so that one setting makes both a Transformer.
    kind: Literal["recurrent", "transformer"] | None = None
    # Width of the embeddings, and of the Transformer.
    embedding_dim: int = 128
    num_layers: int = 1
    dropout: float = 0.1
    # For the recurrent encoder: width of one direction.
    units: int = 224
    cell: Literal["lstm", "gru"] = "lstm"
    # For the Transformer.
    num_heads: int = 4
    hidden_dim: int = 512

    limits: ClassVar = {
        "embedding_dim units hidden_dim": (1, 8192),
        "num_layers num_heads": (1, 64),
        "dropout": FRACTION,
    }


@dataclass(frozen=True)
class WordLimits(Limited, DecodingOptions):
    """`DecodingOptions` with limits on the number of words."""

    beam_size: int = 4
    length_penalty: float = 1.0
    length_penalty_kind: Literal["gnmt", "average"] = "average"
    min_words: int = 0
    max_words: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 0, "min_words")
        require_at_least(self, max(self.min_words, 1), "max_words")


@dataclass(frozen=True)
class SummaryDecodingOptions(WordLimits):
    """`DecodingOptions` with limits on the number of words, counted between spaces, and a penalty for jumps.

    Args:
        jump_penalty: subtracted from the log-probability of a word of the source that follows another one in the
            summary, but not within two words in the source. It makes a model that copies less likely to join the
            halves of two statements.
    """

    max_length: int = 22
    no_repeat_ngram_size: int = 3
    jump_penalty: float = 0.0

    limits: ClassVar = {"jump_penalty": (0, 100)}


@dataclass(frozen=True)
class SummaryOptions(OutputOptions):
    """Options of the post-processing: how much of a long text is summarized.

    Args:
        sentences: the number of lines in the summary, one per passage; see `TextSummarizer`.
    """

    sentences: int | None = None

    limits: ClassVar = {"sentences": (1, None)}


class TextModelConfig(Limited):
    """What the configurations of summarizers and translators have in common."""

    encoder: TextEncoderConfig
    decoder: DecoderConfig

    @property
    def encoder_kind(self) -> str:
        """`recurrent` or `transformer`."""
        return self.encoder.kind or self.decoder.kind

    def min_parameters(self, vocabulary_size: int) -> int:
        """The fewest parameters the model can have, known without building it."""
        encoder, is_recurrent = self.encoder, self.encoder_kind == "recurrent"
        width = encoder.units if is_recurrent else encoder.embedding_dim
        layer = width * (width if is_recurrent else width + encoder.hidden_dim)
        size = vocabulary_size * encoder.embedding_dim + encoder.num_layers * layer
        return max(size, self.decoder.min_parameters(vocabulary_size))  # the embedding may be shared


@dataclass(frozen=True)
class SummarizerConfig(TextModelConfig):
    """The configuration of a `TextSummarizer`."""

    encoder: TextEncoderConfig = field(default_factory=TextEncoderConfig)
    decoder: DecoderConfig = field(
        default_factory=lambda: DecoderConfig(
            embedding_dim=128,
            units=256,
            attention=AttentionConfig(kind="additive", units=128),
            attend="after",
            tied_embeddings=True,
            dropout=0.1,
            initial_state="last",
            copying=True,
        )
    )
    # Whether encoder and decoder share one embedding.
    shared_embedding: bool = True
    decoding: SummaryDecodingOptions = field(default_factory=SummaryDecodingOptions)
    output: SummaryOptions = field(default_factory=SummaryOptions)
    confidence: ConfidenceConfig = field(default_factory=ConfidenceConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    vocabulary_size: int = 20_000
    min_count: int = 1
    # How often the data of a fine-tuning must have a new word to add it. Until then it is copied.
    min_new_count: int = 10
    # The most tokens that the model reads at once; `TextSummarizer` says how longer texts are read.
    max_source_length: int = 100
    # Longer summaries are left out of training.
    max_summary_words: int = 40

    limits: ClassVar = {
        "vocabulary_size": (16, 1_000_000),
        "min_count min_new_count": (1, 1_000_000),
        "max_source_length": (8, 10_000),
        "max_summary_words": (1, 10_000),
    }
