from . import applications, data, decoding, layers, metrics, models, plots, preprocessing, serving, training
from .applications import (
    Caption,
    Compression,
    ImageCaptioner,
    SentenceCompressor,
    SpeechRecognizer,
    Summary,
    TextSummarizer,
    TextTranslator,
    Transcript,
    Translation,
    load,
)
from .decoding.beam_search import beam_search
from .decoding.options import DecodingOptions, DecodingResult
from .decoding.sampling import sample
from .models.copying import PointerGenerator
from .models.encoders import TextEncoder
from .models.recurrent_decoder import RecurrentDecoder
from .models.seq2seq import Seq2Seq
from .models.transformer import TransformerDecoder
from .preprocessing.vocabulary import Vocabulary
from .training.config import TrainingConfig
from .training.trainer import Trainer

__version__: str
__all__ = [
    "Caption",
    "Compression",
    "DecodingOptions",
    "DecodingResult",
    "ImageCaptioner",
    "PointerGenerator",
    "RecurrentDecoder",
    "SentenceCompressor",
    "Seq2Seq",
    "SpeechRecognizer",
    "Summary",
    "TextEncoder",
    "TextSummarizer",
    "TextTranslator",
    "Trainer",
    "TrainingConfig",
    "Transcript",
    "TransformerDecoder",
    "Translation",
    "Vocabulary",
    "__version__",
    "applications",
    "beam_search",
    "data",
    "decoding",
    "layers",
    "load",
    "metrics",
    "models",
    "plots",
    "preprocessing",
    "sample",
    "serving",
    "training",
]
