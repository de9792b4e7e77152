"""Sentence compression by deletion."""

from collections.abc import Sequence
from typing import Any, overload

from attention_apps.applications.application import Application
from attention_apps.applications.compression.codec import TagCodec
from attention_apps.applications.compression.compression import Compression
from attention_apps.applications.compression.config import CompressorConfig
from attention_apps.applications.compression.examples import CompressionExamples
from attention_apps.applications.compression.reader import SentenceReader
from attention_apps.applications.parts import Parts
from attention_apps.models import Seq2Seq, TextEncoder
from attention_apps.models.copying import TagDecoder
from attention_apps.preprocessing.vocabulary import Vocabulary


def make_model(config: CompressorConfig, vocabulary: Vocabulary) -> Seq2Seq:
    """Build the encoder and the decoder of a compressor."""
    encoder = TextEncoder(
        len(vocabulary),
        config.encoder.embedding_dim,
        config.encoder.units,
        num_layers=config.encoder.num_layers,
        cell=config.encoder.cell,
        dropout=config.encoder.dropout,
        name="encoder",
    )
    model = Seq2Seq(encoder, TagDecoder(config.decoder.units, dropout=config.decoder.dropout, name="decoder"))
    model.build({"source": {"token_ids": (None, None)}, "tokens": (None, None)})
    return model


class SentenceCompressor(Application[CompressorConfig]):
    """Shortens each sentence of a text by deleting words. Kept words keep their spelling.

    With `sentences=N`, the text is divided into N parts of about equal size, and only the first sentence of each is
    kept, one per line. A text of fewer than four words stays unchanged.

    Example:
        compressor = SentenceCompressor.from_preset()
        compressor.compress("A man was arrested on Monday, police said.").text

    Reference:
        Filippova et al. 2015, "Sentence Compression by Deletion with LSTMs".
    """

    task = "sentence_compression"
    config_class = CompressorConfig
    default_preset = "sentence_compression_google"
    parts = Parts(reader=SentenceReader, codec=TagCodec, model=make_model, examples=CompressionExamples)

    @overload
    def compress(self, texts: str | bytes, **options: Any) -> Compression: ...

    @overload
    def compress(self, texts: Sequence[str | bytes], **options: Any) -> list[Compression]: ...

    def compress(self, texts: str | bytes | Sequence[str | bytes], **options: Any) -> Compression | list[Compression]:
        """Compress one text or a list of texts: strings, or UTF-8 bytes.

        A single item that is not a text raises an error. In a list, its result has an `error` and no text.

        Args:
            options: options of the search and the output, such as `max_words=12, sentences=3`.
        """
        return self.answer(texts, options)
