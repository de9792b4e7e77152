"""The configuration of a speech recognizer."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from attention_apps.applications.outputs import FRACTION, ConfidenceConfig, Limited
from attention_apps.applications.parts import OutputOptions
from attention_apps.checks import require
from attention_apps.constants import PADDING, START, UNKNOWN
from attention_apps.decoding import DecodingOptions
from attention_apps.models.decoder_config import AttentionConfig, DecoderConfig
from attention_apps.preprocessing.audio_augmentation import AudioAugmentation, SpecAugment
from attention_apps.preprocessing.audio_features import LogMelOptions
from attention_apps.training.config import TrainingConfig
from attention_apps.training.losses import CTCLoss


@dataclass(frozen=True)
class ListenerConfig(Limited):
    """The network that listens; see `Listener`."""

    units: int = 192
    num_layers: int = 3
    front_end: Literal["convolutional", "pyramidal"] = "convolutional"
    filters: int = 32
    dropout: float = 0.1

    limits: ClassVar = {"units filters": (1, 4096), "num_layers": (1, 64), "dropout": FRACTION}


@dataclass(frozen=True)
class MoonshineConfig(Limited):
    """A `MoonshineEncoder` and a `MoonshineDecoder`, which see for the arguments."""

    dim: int = 288
    encoder_layers: int = 6
    decoder_layers: int = 6
    num_heads: int = 8
    hidden_dim: int = 1152
    rotary_dim: int = 32
    dropout: float = 0.0
    # The longest transcript in tokens, and the most tokens for a second of a recording.
    max_length: int = 194
    tokens_per_second: float = 6.5
    # A recording has an empty text if the decoder gives the end this probability before the first token. Below it, a
    # search with `min_length` of at least 2 writes something, however likely the end is.
    silence_threshold: float = 0.97
    # Pairs of decoder layer and head whose attention follows the recording; by default all heads of the last layer.
    alignment_heads: tuple[tuple[int, int], ...] = ()

    limits: ClassVar = {
        "dim hidden_dim max_length": (1, 4096),
        "encoder_layers decoder_layers num_heads": (1, 64),
        "dropout": FRACTION,
        "silence_threshold": (0, 1),
        "tokens_per_second": (0.1, 100),
    }


@dataclass(frozen=True)
class SpeechDecodingOptions(Limited, DecodingOptions):
    """`DecodingOptions` with the weights of CTC and of a language model.

    Args:
        ctc_weight: λ of λ · CTC + (1 - λ) · attention, which ranks the hypotheses; 0 for attention alone.
        language_model_weight: factor of the log-probabilities of a letter model; 0 for none. A recognizer has one after
            `fit_language_model`, or if it was trained with `language_model_order`.
    """

    max_length: int = 160
    banned_tokens: tuple[int, ...] = (PADDING, START, UNKNOWN)
    ctc_weight: float = 0.3
    language_model_weight: float = 0.0

    limits: ClassVar = {"ctc_weight": FRACTION, "language_model_weight": (0, None)}


@dataclass(frozen=True)
class TranscriptOptions(OutputOptions):
    """When a transcript is not given.

    Args:
        min_confidence: a recording whose text has a lower confidence gets an empty text, as silence and noise should.
            The confidence of a letter is the geometric mean of the probabilities that attention and CTC give it.
    """

    min_confidence: float = 0.35

    limits: ClassVar = {"min_confidence": (0, 1)}


@dataclass(frozen=True)
class AugmentationConfig(Limited):
    """How training changes recordings, and from which epoch on, counted from 0."""

    waveform: AudioAugmentation = field(default_factory=AudioAugmentation)
    waveform_from_epoch: int = 0
    spectrum: SpecAugment = field(default_factory=SpecAugment)
    spectrum_from_epoch: int = 5
    # Factors of the tempo, one of which is drawn each time. The pitch stays; `waveform.speeds` change it.
    tempos: tuple[float, ...] = (1.0,)
    # Recordings of noise alone in each epoch; their text is empty.
    noise_alone: int = 0
    # At most this many for each recording of speech: trained on little speech and much noise, a model writes nothing.
    max_noise_fraction: float = 0.05

    limits: ClassVar = {"waveform_from_epoch spectrum_from_epoch noise_alone max_noise_fraction": (0, None)}

    def __post_init__(self) -> None:
        super().__post_init__()
        are_valid = bool(self.tempos) and all(0.5 <= tempo <= 2 for tempo in self.tempos)
        require(are_valid, "tempos", "one or more factors between 0.5 and 2", self.tempos)


@dataclass(frozen=True)
class GroupShare(Limited):
    """How many recordings of a group some epochs have. The manifest's column `group` names the groups.

    Args:
        count: drawn anew each epoch; all of the group for `None`.
        first_epoch, end_epoch: the first epoch with the group, and the first one without it, counted from 0.
    """

    group: str
    count: int | None = None
    first_epoch: int = 0
    end_epoch: int | None = None

    limits: ClassVar = {"count": (1, None)}


@dataclass(frozen=True)
class RecognizerConfig(Limited):
    """The configuration of a `SpeechRecognizer`. Lengths of recordings, also in `training`, are in seconds.

    There are two kinds of models. With a section `moonshine` it is Moonshine, which reads waveforms and writes
    sub-words. Without one it is a listener, which reads log-mel features, and a speller, which writes letters.
    `encoder`, `decoder`, `ctc`, `language_model_order`, `augmentation.spectrum` and `augmentation.tempos` are for the
    listener and speller alone.
    """

    moonshine: MoonshineConfig | None = None
    features: LogMelOptions = field(default_factory=LogMelOptions)
    encoder: ListenerConfig = field(default_factory=ListenerConfig)
    decoder: DecoderConfig = field(
        default_factory=lambda: DecoderConfig(
            embedding_dim=64,
            units=256,
            attention=AttentionConfig(kind="location_sensitive", units=128, filters=10, kernel_size=31),
            dropout=0.1,
        )
    )
    ctc: CTCLoss = field(default_factory=CTCLoss)
    decoding: SpeechDecodingOptions = field(default_factory=SpeechDecodingOptions)
    output: TranscriptOptions = field(default_factory=TranscriptOptions)
    confidence: ConfidenceConfig = field(default_factory=ConfidenceConfig)
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(
            batch_size=64, max_batch_length=64.0, schedule="linear", short_first_epochs=1
        )
    )
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    # What an epoch is made of; all rows if this is empty.
    mixture: tuple[GroupShare, ...] = ()
    # The first epochs have only recordings shorter than `short_seconds`.
    short_epochs: int = 0
    short_seconds: float = 3.0
    # Order of an n-gram model of the letters of the training texts; none by default.
    language_model_order: int | None = None
    # How transcripts are written.
    case: Literal["upper", "lower", "keep"] = "upper"
    punctuation: bool = False
    # The longest training recording. Longer recordings are cut at pauses when they are transcribed.
    max_seconds: float = 15.0

    limits: ClassVar = {"max_seconds": (1, 120), "short_epochs": (0, None), "language_model_order": (1, 12)}

    def min_parameters(self, vocabulary_size: int) -> int:
        """The fewest parameters the model can have, known without building it."""
        sizes = self.moonshine
        if sizes is not None:
            encoder = sizes.encoder_layers * (4 * sizes.dim + 2 * sizes.hidden_dim)
            decoder = sizes.decoder_layers * (8 * sizes.dim + 3 * sizes.hidden_dim)
            return sizes.dim * (encoder + decoder + vocabulary_size)
        listener = self.encoder.num_layers * self.encoder.units**2
        if self.encoder.front_end == "convolutional":
            listener += self.encoder.filters**2
        return listener + self.decoder.min_parameters(vocabulary_size)
