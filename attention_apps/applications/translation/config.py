"""The configuration of a translator."""

from dataclasses import dataclass, field
from typing import ClassVar

from attention_apps.applications.outputs import ConfidenceConfig
from attention_apps.applications.parts import OutputOptions
from attention_apps.applications.summarization.config import TextEncoderConfig, TextModelConfig
from attention_apps.checks import require
from attention_apps.decoding import DecodingOptions
from attention_apps.models.decoder_config import DecoderConfig
from attention_apps.training.config import TrainingConfig


@dataclass(frozen=True)
class TranslatorConfig(TextModelConfig):
    """The configuration of a `TextTranslator`, by default the Transformer-tiny of Wu et al. 2021."""

    encoder: TextEncoderConfig = field(
        default_factory=lambda: TextEncoderConfig(num_layers=4, hidden_dim=256, dropout=0.3)
    )
    decoder: DecoderConfig = field(
        default_factory=lambda: DecoderConfig(
            kind="transformer", embedding_dim=128, num_layers=4, num_heads=4, hidden_dim=256, dropout=0.3
        )
    )
    # Whether encoder and decoder share one embedding; a Transformer's output layer always shares the decoder's.
    shared_embedding: bool = True
    decoding: DecodingOptions = field(
        default_factory=lambda: DecodingOptions(beam_size=5, max_length=128, length_penalty=1.0)
    )
    output: OutputOptions = field(default_factory=OutputOptions)
    confidence: ConfidenceConfig = field(default_factory=ConfidenceConfig)
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(
            batch_size=1024,
            max_batch_length=4096,
            learning_rate=5e-3,
            warmup_steps=2000,
            schedule="inverse_sqrt",
        )
    )
    # Pieces of words of both languages, 256 of which are the bytes.
    vocabulary_size: int = 8_000
    # In training, the probability with which a piece is passed over, so that words are cut in many ways.
    piece_dropout: float = 0.0
    # The longest sentence in bytes of UTF-8. Longer rows are left out of training, longer sentences are cut.
    max_sentence_length: int = 400

    limits: ClassVar = {
        "vocabulary_size": (270, 1_000_000),
        "max_sentence_length": (64, 10_000),
        "piece_dropout": (0, 0.9),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        is_same = self.encoder.embedding_dim == self.decoder.embedding_dim
        width = self.encoder.embedding_dim
        require(is_same or not self.shared_embedding, "embedding_dim", "the same for encoder and decoder", width)
