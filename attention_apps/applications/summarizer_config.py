"""The configuration of a summarizer."""

from dataclasses import dataclass, field
from typing import Literal

from attention_apps.decoding import DecodingOptions
from attention_apps.models.decoder_config import AttentionConfig, DecoderConfig
from attention_apps.training.config import TrainingConfig


@dataclass(frozen=True)
class TextEncoderConfig:
    """The network that reads the text; see `TextEncoder` and `TransformerEncoder`."""

    # By default the decoder's, so that `decoder.kind` is the one line that makes a Transformer of both.
    kind: Literal["recurrent", "transformer"] | None = None
    # Width of the embeddings, and of the Transformer.
    embedding_dim: int = 128
    num_layers: int = 1
    dropout: float = 0.1
    # Of the recurrent encoder: width of one direction.
    units: int = 224
    cell: Literal["lstm", "gru"] = "lstm"
    # Of the Transformer.
    num_heads: int = 4
    hidden_dim: int = 512

    def __post_init__(self) -> None:
        for name in ("embedding_dim", "units", "hidden_dim", "num_layers", "num_heads"):
            largest = 64 if name.startswith("num") else 8192
            if not 1 <= getattr(self, name) <= largest:
                raise ValueError(f"`{name}` must be between 1 and {largest}. Received: {name}={getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"`dropout` must be at least 0 and less than 1. Received: dropout={self.dropout}")


@dataclass(frozen=True)
class SummaryOptions(DecodingOptions):
    """As `DecodingOptions`, and bounds on the number of words, which is what stands between spaces.

    Where words are deleted, punctuation counts as well, `keep_bias` is added to the score of each word kept, and the
    lengths, the n-grams and the bans of `DecodingOptions` mean nothing.
    """

    beam_size: int = 4
    max_length: int = 22
    length_penalty: float = 1.0
    length_penalty_kind: str = "average"
    no_repeat_ngram_size: int = 3
    min_words: int = 0
    max_words: int | None = None
    keep_bias: float = 0.0
    # Lines of the summary; see `TextSummarizer`.
    sentences: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_words < 0:
            raise ValueError(f"`min_words` must be at least 0. Received: min_words={self.min_words}")
        for name, least in (("max_words", max(self.min_words, 1)), ("sentences", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"`{name}` must be at least {least}. Received: {name}={value}")


def _pointer_generator():
    return DecoderConfig(
        embedding_dim=128,
        units=256,
        attention=AttentionConfig(kind="additive", units=128),
        attend="after",
        tied_embeddings=True,
        dropout=0.1,
        initial_state="last",
        copying=True,
    )


@dataclass(frozen=True)
class SummarizerConfig:
    """All that makes up a summarizer."""

    # Write a summary in words of its own, or delete words of the text (sentence compression).
    method: Literal["generate", "delete"] = "generate"
    encoder: TextEncoderConfig = field(default_factory=TextEncoderConfig)
    decoder: DecoderConfig = field(default_factory=_pointer_generator)
    # Whether encoder and decoder use one embedding.
    shared_embedding: bool = True
    decoding: SummaryOptions = field(default_factory=SummaryOptions)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    vocabulary_size: int = 20_000
    min_count: int = 1
    # How often the data of a fine-tuning must have a word for it to be learned; until then it is copied.
    min_new_count: int = 10
    # The most tokens that the model reads at once; how longer texts are read is said in `TextSummarizer`.
    max_source_length: int = 100
    # Of a training row.
    max_summary_words: int = 40

    def __post_init__(self) -> None:
        for name, least, largest in (
            ("vocabulary_size", 16, 1_000_000),
            ("min_count", 1, 1_000_000),
            ("min_new_count", 1, 1_000_000),
            ("max_source_length", 8, 10_000),
            ("max_summary_words", 1, 10_000),
        ):
            if not least <= getattr(self, name) <= largest:
                received = f"Received: {name}={getattr(self, name)}"
                raise ValueError(f"`{name}` must be between {least} and {largest}. {received}")
        if self.method == "delete" and self.training.label_smoothing:
            received = f"Received: label_smoothing={self.training.label_smoothing}"
            raise ValueError(f"`label_smoothing` must be 0 where words are deleted. {received}")

    @property
    def encoder_kind(self) -> str:
        """`recurrent` or `transformer`."""
        return self.encoder.kind or self.decoder.kind

    def fewest_weights(self, vocabulary_size: int) -> int:
        """How many weights the model has at least, known without making it."""
        encoder = self.encoder
        if self.encoder_kind == "recurrent" or self.method == "delete":
            layer = encoder.units**2
        else:
            layer = encoder.embedding_dim * (encoder.embedding_dim + encoder.hidden_dim)
        reader = vocabulary_size * encoder.embedding_dim + encoder.num_layers * layer
        if self.method == "delete":
            return reader + self.decoder.units**2
        return max(reader, self.decoder.fewest_weights(vocabulary_size))  # the embedding may be one for both
