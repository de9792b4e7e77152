from .audio import SAMPLE_RATE, read_audio
from .audio_augmentation import change_speed
from .image import read_image
from .log_mel import LogMelOptions
from .pauses import FRAME_SECONDS, loud_frames
from .sentences import sentence_starts
from .text import detokenize, tokenize
from .vocabulary import Vocabulary

__all__ = [
    "FRAME_SECONDS",
    "SAMPLE_RATE",
    "LogMelOptions",
    "Vocabulary",
    "change_speed",
    "detokenize",
    "loud_frames",
    "read_audio",
    "read_image",
    "sentence_starts",
    "tokenize",
]
