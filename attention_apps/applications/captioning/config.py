"""The configuration of an image captioner."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from attention_apps.applications.outputs import FRACTION, ConfidenceConfig, Limited
from attention_apps.applications.parts import OutputOptions
from attention_apps.constants import UNKNOWN
from attention_apps.decoding import DecodingOptions
from attention_apps.models.decoder_config import AttentionConfig, DecoderConfig
from attention_apps.training.config import TrainingConfig


@dataclass(frozen=True)
class ImageEncoderConfig(Limited):
    """The network that looks at the photo; see `ImageEncoder`."""

    backbone: str = "efficientnet_lite2"
    image_size: int = 256
    # How a photo becomes a square: squashed as a whole, or its center cropped.
    fit: Literal["squash", "crop"] = "squash"
    include_head: bool = True
    trainable_from: str | None = None
    units: int | None = None
    dropout: float = 0.0
    # The share of the regions that training hides from attention.
    region_dropout: float = 0.0
    # Average the features of the photo and of its mirror image; only for a frozen backbone.
    mirrored: bool = False

    limits: ClassVar = {"image_size": (32, 1024), "units": (1, 8192), "dropout region_dropout": FRACTION}


@dataclass(frozen=True)
class CaptionerConfig(Limited):
    """The configuration of an `ImageCaptioner`."""

    encoder: ImageEncoderConfig = field(default_factory=ImageEncoderConfig)
    decoder: DecoderConfig = field(
        default_factory=lambda: DecoderConfig(
            embedding_dim=256,
            units=512,
            attention=AttentionConfig(kind="additive", units=256),
            context_gate="scalar",
            deep_output=True,
            tied_embeddings=True,
            dropout=0.5,
        )
    )
    decoding: DecodingOptions = field(
        default_factory=lambda: DecodingOptions(
            length_penalty=0.7, length_penalty_kind="average", banned_tokens=(UNKNOWN,)
        )
    )
    output: OutputOptions = field(default_factory=OutputOptions)
    confidence: ConfidenceConfig = field(default_factory=ConfidenceConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    # Words that are rarer than this in the training captions are out of vocabulary.
    min_count: int = 5
    # Captions of a photo that one training step uses. Where there are more, some are drawn each time.
    captions_per_image: int = 5
    # Longer captions are left out of training.
    max_words: int = 50
    # Cropped and recolored versions of each photo whose features training caches. With none, and a trainable backbone,
    # photos are augmented anew each time.
    augmented_views: int = 0
    # Weight of the loss that draws attention to what a word names, for photos whose rows have `boxes`.
    box_weight: float = 0.0

    limits: ClassVar = {"augmented_views box_weight": (0, 100)}

    def min_parameters(self, vocabulary_size: int) -> int:
        """The fewest parameters the model can have, known without building it."""
        return self.decoder.min_parameters(vocabulary_size)
