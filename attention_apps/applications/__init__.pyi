from .application import Application
from .captioning.caption import Box, Caption, join_boxes
from .captioning.captioner import ImageCaptioner
from .captioning.config import CaptionerConfig, ImageEncoderConfig
from .compression.compression import Compression
from .compression.compressor import SentenceCompressor
from .compression.config import (
    CompressionDecodingOptions,
    CompressorConfig,
    CompressorEncoderConfig,
    TagDecoderConfig,
)
from .outputs import ConfidenceConfig
from .parts import Codec, Evaluation, Examples, OutputOptions, Parts, RawInput, Reader, Reading, Source
from .pipeline import Pipeline
from .recognition.config import (
    AugmentationConfig,
    GroupShare,
    ListenerConfig,
    MoonshineConfig,
    RecognizerConfig,
    SpeechDecodingOptions,
    TranscriptOptions,
)
from .recognition.recognizer import SpeechRecognizer
from .recognition.transcript import SpokenWord, Transcript, TranscriptPart
from .summarization.config import SummarizerConfig, SummaryDecodingOptions, SummaryOptions, TextEncoderConfig
from .summarization.summarizer import TextSummarizer
from .summarization.summary import Summary, SummaryLine
from .tasks import TASKS, application_class, load
from .translation.config import TranslatorConfig
from .translation.translation import Translation
from .translation.translator import TextTranslator

__all__ = [
    "TASKS",
    "Application",
    "AugmentationConfig",
    "Box",
    "Caption",
    "CaptionerConfig",
    "Codec",
    "Compression",
    "CompressionDecodingOptions",
    "CompressorConfig",
    "CompressorEncoderConfig",
    "ConfidenceConfig",
    "Evaluation",
    "Examples",
    "GroupShare",
    "ImageCaptioner",
    "ImageEncoderConfig",
    "ListenerConfig",
    "MoonshineConfig",
    "OutputOptions",
    "Parts",
    "Pipeline",
    "RawInput",
    "Reader",
    "Reading",
    "RecognizerConfig",
    "SentenceCompressor",
    "Source",
    "SpeechDecodingOptions",
    "SpeechRecognizer",
    "SpokenWord",
    "Summary",
    "SummaryDecodingOptions",
    "SummaryLine",
    "SummaryOptions",
    "SummarizerConfig",
    "TagDecoderConfig",
    "TextEncoderConfig",
    "TextSummarizer",
    "TextTranslator",
    "Transcript",
    "TranscriptOptions",
    "TranscriptPart",
    "Translation",
    "TranslatorConfig",
    "application_class",
    "join_boxes",
    "load",
]
