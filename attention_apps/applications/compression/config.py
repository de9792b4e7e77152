"""The configuration of a sentence compressor."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from attention_apps.applications.outputs import FRACTION, ConfidenceConfig, Limited
from attention_apps.applications.summarization.config import SummaryOptions, WordLimits
from attention_apps.checks import require
from attention_apps.training.config import TrainingConfig


@dataclass(frozen=True)
class CompressorEncoderConfig(Limited):
    """The network that reads the sentence; see `TextEncoder`."""

    embedding_dim: int = 128
    num_layers: int = 1
    dropout: float = 0.1
    # Width of one direction.
    units: int = 224
    cell: Literal["lstm", "gru"] = "lstm"

    limits: ClassVar = {"embedding_dim units": (1, 8192), "num_layers": (1, 64), "dropout": FRACTION}


@dataclass(frozen=True)
class TagDecoderConfig(Limited):
    """The network that keeps or deletes each word; see `TagDecoder`."""

    units: int = 256
    dropout: float = 0.1

    limits: ClassVar = {"units": (1, 8192), "dropout": FRACTION}


@dataclass(frozen=True)
class CompressionDecodingOptions(WordLimits):
    """`DecodingOptions` with limits on the number of kept words. Punctuation counts as words.

    The lengths, n-grams and banned tokens of `DecodingOptions` have no effect, because every word gets one tag.

    Args:
        keep_bias: added to the score of each kept word.
    """

    keep_bias: float = 0.0


@dataclass(frozen=True)
class CompressorConfig(Limited):
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

    limits: ClassVar = {
        "vocabulary_size": (16, 1_000_000),
        "min_count min_new_count": (1, 1_000_000),
        "max_source_length": (8, 10_000),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        smoothing = self.training.label_smoothing
        require(smoothing == 0, "label_smoothing", "0 where words are deleted", smoothing)

    def min_parameters(self, vocabulary_size: int) -> int:
        """The fewest parameters the model can have, known without building it."""
        encoder = self.encoder
        reader = vocabulary_size * encoder.embedding_dim + encoder.num_layers * encoder.units**2
        return reader + self.decoder.units**2
