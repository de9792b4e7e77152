from .audio import SAMPLE_RATE, read_audio
from .audio_augmentation import AudioAugmentation, SpecAugment, change_speed
from .audio_features import FRAME_SECONDS, LogMelOptions, loud_frames
from .image import read_image
from .sentences import sentence_starts
from .text import detokenize, tokenize
from .vocabulary import Vocabulary

__all__ = [
    "FRAME_SECONDS",
    "SAMPLE_RATE",
    "AudioAugmentation",
    "LogMelOptions",
    "SpecAugment",
    "Vocabulary",
    "change_speed",
    "detokenize",
    "loud_frames",
    "read_audio",
    "read_image",
    "sentence_starts",
    "tokenize",
]
