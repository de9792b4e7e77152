"""Text summarization with a pointer-generator or a KerasHub model."""

from collections.abc import Sequence
from typing import Any, Self, overload

from attention_apps.applications.application import Application
from attention_apps.applications.parts import Parts
from attention_apps.applications.summarization.codec import SummaryCodec
from attention_apps.applications.summarization.config import SummarizerConfig
from attention_apps.applications.summarization.examples import SummaryExamples
from attention_apps.applications.summarization.reader import TextReader
from attention_apps.applications.summarization.summary import Summary
from attention_apps.models import Seq2Seq, TextEncoder, TransformerEncoder
from attention_apps.models.decoder_config import make_decoder
from attention_apps.preprocessing.vocabulary import Vocabulary


class TextSummarizer(Application):
    """Summarizes a text in one line, and shows which words it read for each word it wrote.

    Of a text longer than `max_source_length` tokens, the first sentences that fit are summarized. With `sentences=N`,
    the text is divided into N parts of about equal size, and the first sentence of each is summarized on its own, one
    per line, so that no line joins the facts of two sentences. `Summary.passages` lists what was read. A text of fewer
    than four words is its own summary, and a blank text has none.

    Example:
        summarizer = TextSummarizer.from_preset()
        summary = summarizer.summarize(text)
        summary.text, summary.attention.shape   # ("Queen spotted at ...", (words, source tokens))

    Reference:
        See et al. 2017, "Get To The Point".
    """

    task = "text_summarization"
    config_class = SummarizerConfig
    default_preset = "pointer_generator_headlines"

    def __init__(
        self,
        config: SummarizerConfig | None = None,
        vocabulary: Vocabulary | None = None,
        parts: Parts | None = None,
    ):
        own = Parts(reader=TextReader, codec=SummaryCodec, model=make_model, examples=SummaryExamples)
        super().__init__(config, vocabulary, own if parts is None else parts)

    @classmethod
    def from_keras_hub(cls, model: Any, config: SummarizerConfig | None = None) -> Self:
        """Make a summarizer from a pretrained KerasHub model, with our search, training and alignments.

        It reads and writes the sub-words of the model's own tokenizer, without copying.

        Args:
            model: a `Seq2SeqLM` with its preprocessor (BART, T5, T5Gemma), or the name or folder of its preset.
            config: only `decoding`, `output`, `training`, `max_source_length` and `decoder.max_length`, the longest
                summary, are used.
        """
        from attention_apps.applications.summarization.keras_hub import keras_hub_parts

        config, vocabulary, parts = keras_hub_parts(model, config)
        return cls(config, vocabulary, parts)

    @overload
    def summarize(self, texts: str | bytes, **options: Any) -> Summary: ...

    @overload
    def summarize(self, texts: Sequence[str | bytes], **options: Any) -> list[Summary]: ...

    def summarize(self, texts: str | bytes | Sequence[str | bytes], **options: Any) -> Summary | list[Summary]:
        """Summarize one text or a list of texts: strings, or UTF-8 bytes.

        A single item that is not a text raises an error. In a list, its summary has an `error` and no text.

        Args:
            options: options of the search and the output, such as `max_words=12, sentences=3`.
        """
        return self.answer(texts, options)


def make_model(config: SummarizerConfig, vocabulary: Vocabulary) -> Seq2Seq:
    """Build the encoder and the decoder of a summarizer."""
    size, encoder = len(vocabulary), config.encoder
    shared = {"num_layers": encoder.num_layers, "dropout": encoder.dropout, "name": "encoder"}
    if config.encoder_kind == "recurrent":
        reader = TextEncoder(size, encoder.embedding_dim, encoder.units, cell=encoder.cell, **shared)
    else:
        heads = {"num_heads": encoder.num_heads, "hidden_dim": encoder.hidden_dim}
        reader = TransformerEncoder(size, encoder.embedding_dim, **heads, **shared)
    model = Seq2Seq(reader, make_decoder(config.decoder, size), config.shared_embedding)
    ids = (None, None)
    model.build({"source": {"token_ids": ids, "source_ids": ids}, "tokens": ids})
    return model
