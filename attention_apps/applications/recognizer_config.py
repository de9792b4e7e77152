"""The configuration of a speech recognizer."""

from dataclasses import dataclass, field
from typing import Literal

from attention_apps.decoding import DecodingOptions
from attention_apps.models.decoder_config import AttentionConfig, DecoderConfig
from attention_apps.models.tokens import PADDING, START, UNKNOWN
from attention_apps.preprocessing.audio_augmentation import AudioAugmentation, SpecAugment
from attention_apps.preprocessing.log_mel import LogMelOptions
from attention_apps.training.config import TrainingConfig
from attention_apps.training.ctc_companion import CTCCompanion


@dataclass(frozen=True)
class ListenerConfig:
    """The network that listens; see `Listener`."""

    units: int = 192
    num_layers: int = 3
    front_end: Literal["convolutional", "pyramidal"] = "convolutional"
    filters: int = 32
    dropout: float = 0.1

    def __post_init__(self) -> None:
        for name, largest in (("units", 4096), ("num_layers", 64), ("filters", 4096)):
            if not 1 <= getattr(self, name) <= largest:
                raise ValueError(f"`{name}` must be between 1 and {largest}. Received: {name}={getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"`dropout` must be at least 0 and less than 1. Received: dropout={self.dropout}")


@dataclass(frozen=True)
class TranscriptionOptions(DecodingOptions):
    """As `DecodingOptions`, with the share of CTC in the search and when a text is not believed.

    Args:
        ctc_weight: λ of λ · CTC + (1 - λ) · attention, which ranks the hypotheses; 0 for attention alone.
        language_model_weight: factor of the log-probabilities of a letter model; 0 for none. A recognizer has one after
            `fit_language_model`, or where `language_model_order` was given in training.
        min_confidence: a recording whose text has a lower mean confidence is answered with an empty text, as silence
            and noise should be. The confidence of a letter is the geometric mean of the probabilities that attention
            and CTC give it.
    """

    max_length: int = 160
    banned_tokens: tuple[int, ...] = (PADDING, START, UNKNOWN)
    ctc_weight: float = 0.3
    language_model_weight: float = 0.0
    min_confidence: float = 0.35

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(0 <= self.ctc_weight < 1, "ctc_weight", "at least 0 and less than 1")
        self._require(self.language_model_weight >= 0, "language_model_weight", "at least 0")
        self._require(0 <= self.min_confidence <= 1, "min_confidence", "between 0 and 1")


@dataclass(frozen=True)
class AugmentationConfig:
    """How training changes what it hears, and from which epoch on, counted from 0."""

    waveform: AudioAugmentation = field(default_factory=AudioAugmentation)
    waveform_from_epoch: int = 0
    spectrum: SpecAugment = field(default_factory=SpecAugment)
    spectrum_from_epoch: int = 5
    # Factors of the tempo, one of which is drawn each time: frames lie so much further apart, and the pitch stays.
    # With `waveform.speeds`, which move the pitch, high voices that speak slowly come out of low ones.
    tempos: tuple[float, ...] = (1.0,)
    # Recordings of nothing but noise that an epoch has, whose text is empty.
    noise_alone: int = 0

    def __post_init__(self) -> None:
        for name in ("waveform_from_epoch", "spectrum_from_epoch", "noise_alone"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must be at least 0. Received: {name}={getattr(self, name)}")
        if not self.tempos or not all(0.5 <= tempo <= 2 for tempo in self.tempos):
            raise ValueError(f"`tempos` must be one or more factors between 0.5 and 2. Received: tempos={self.tempos}")


@dataclass(frozen=True)
class GroupShare:
    """How many recordings of a group, which is what the manifest's column `group` says, some epochs have.

    Args:
        count: drawn anew each epoch; all of the group for `None`.
        first_epoch, end_epoch: the first epoch that has them, and the first that has not, counted from 0.
    """

    group: str
    count: int | None = None
    first_epoch: int = 0
    end_epoch: int | None = None

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise ValueError(f"`count` must be at least 1. Received: count={self.count}")

    def is_in(self, epoch: int) -> bool:
        return self.first_epoch <= epoch and (self.end_epoch is None or epoch < self.end_epoch)


def _speller():
    return DecoderConfig(
        embedding_dim=64,
        units=256,
        attention=AttentionConfig(kind="location_sensitive", units=128, filters=10, kernel_size=31),
        dropout=0.1,
    )


def _training():
    return TrainingConfig(batch_size=64, max_batch_length=64.0, schedule="linear", short_first_epochs=1)


@dataclass(frozen=True)
class RecognizerConfig:
    """All that makes up a speech recognizer. Lengths of recordings, also in `training`, are in seconds."""

    features: LogMelOptions = field(default_factory=LogMelOptions)
    encoder: ListenerConfig = field(default_factory=ListenerConfig)
    decoder: DecoderConfig = field(default_factory=_speller)
    ctc: CTCCompanion = field(default_factory=CTCCompanion)
    decoding: TranscriptionOptions = field(default_factory=TranscriptionOptions)
    training: TrainingConfig = field(default_factory=_training)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    # What an epoch is made of; all rows where this is empty.
    mixture: tuple[GroupShare, ...] = ()
    # For so many epochs at the beginning, only recordings shorter than so many seconds.
    short_epochs: int = 0
    short_seconds: float = 3.0
    # The longest sequence of letters that a language model counts in the training texts; "none" for no such model.
    language_model_order: int | None = None
    # How transcripts are written.
    case: Literal["upper", "lower", "keep"] = "upper"
    punctuation: bool = False
    # Of a training row; a longer recording that is transcribed is cut at a pause.
    max_seconds: float = 15.0

    def __post_init__(self) -> None:
        if not 1 <= self.max_seconds <= 120:
            raise ValueError(f"`max_seconds` must be between 1 and 120. Received: max_seconds={self.max_seconds}")
        if self.short_epochs < 0:
            raise ValueError(f"`short_epochs` must be at least 0. Received: short_epochs={self.short_epochs}")
        if self.language_model_order is not None and not 1 <= self.language_model_order <= 12:
            received = f"Received: language_model_order={self.language_model_order}"
            raise ValueError(f"`language_model_order` must be between 1 and 12. {received}")

    def fewest_weights(self, vocabulary_size: int) -> int:
        """How many weights the model has at least, known without making it."""
        listener = self.encoder.num_layers * self.encoder.units**2
        if self.encoder.front_end == "convolutional":
            listener += self.encoder.filters**2
        return listener + self.decoder.fewest_weights(vocabulary_size)
