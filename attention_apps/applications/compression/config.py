"""The configuration of a sentence compressor."""

from dataclasses import dataclass, field
from typing import Literal

from attention_apps.applications.outputs import ConfidenceConfig
from attention_apps.applications.summarization.config import SummaryOptions, require_word_limits
from attention_apps.checks import require, require_between, require_fraction
from attention_apps.decoding import DecodingOptions
from attention_apps.training.config import TrainingConfig


@dataclass(frozen=True)
class CompressorEncoderConfig:
    """The network that reads the sentence; see `TextEncoder`."""

    embedding_dim: int = 128
    num_layers: int = 1
    dropout: float = 0.1
    # Width of one direction.
    units: int = 224
    cell: Literal["lstm", "gru"] = "lstm"

    def __post_init__(self) -> None:
        require_between(self, 1, 8192, "embedding_dim", "units")
        require_between(self, 1, 64, "num_layers")
        require_fraction(self, "dropout")


@dataclass(frozen=True)
class TagDecoderConfig:
    """The network that keeps or deletes each word; see `TagDecoder`."""

    units: int = 256
    dropout: float = 0.1

    def __post_init__(self) -> None:
        require_between(self, 1, 8192, "units")
        require_fraction(self, "dropout")


@dataclass(frozen=True)
class CompressionDecodingOptions(DecodingOptions):
    """`DecodingOptions` with limits on the number of kept words. Punctuation counts as words.

    The lengths, n-grams and banned tokens of `DecodingOptions` have no effect, because every word gets one tag.

    Args:
        keep_bias: added to the score of each kept word.
    """

    beam_size: int = 4
    length_penalty: float = 1.0
    length_penalty_kind: Literal["gnmt", "average"] = "average"
    min_words: int = 0
    max_words: int | None = None
    keep_bias: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_word_limits(self)


@dataclass(frozen=True)
class CompressorConfig:
    """The configuration of a `SentenceCompressor`."""

    encoder: CompressorEncoderConfig = field(default_factory=CompressorEncoderConfig)
    decoder: TagDecoderConfig = field(default_factory=TagDecoderConfig)
    decoding: CompressionDecodingOptions = field(default_factory=CompressionDecodingOptions)
    output: SummaryOptions = field(default_factory=SummaryOptions)
    confidence: ConfidenceConfig = field(default_factory=ConfidenceConfig)
    training: TrainingConfig = field(default_factory=lambda: TrainingConfig(label_smoothing=0.0))
    vocabulary_size: int = 20_000
    min_count: int = 1
    # How often the data of a fine-tuning must have a new word to add it.
    min_new_count: int = 10
    # The most tokens of a sentence; a longer sentence is cut.
    max_source_length: int = 100

    def __post_init__(self) -> None:
        require_between(self, 16, 1_000_000, "vocabulary_size")
        require_between(self, 1, 1_000_000, "min_count", "min_new_count")
        require_between(self, 8, 10_000, "max_source_length")
        smoothing = self.training.label_smoothing
        require(smoothing == 0, "label_smoothing", "0 where words are deleted", smoothing)

    def min_parameters(self, vocabulary_size: int) -> int:
        """The fewest parameters the model can have, known without building it."""
        encoder = self.encoder
        reader = vocabulary_size * encoder.embedding_dim + encoder.num_layers * encoder.units**2
        return reader + self.decoder.units**2
