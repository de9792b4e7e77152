"""Text summarization with a pointer-generator or a KerasHub model."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Self, overload

import tensorflow as tf

from attention_apps.applications.application import Application
from attention_apps.applications.parts import Parts, Tensors
from attention_apps.applications.summarization.codec import SummaryCodec
from attention_apps.applications.summarization.config import SummarizerConfig, SummaryDecodingOptions
from attention_apps.applications.summarization.examples import SummaryExamples
from attention_apps.applications.summarization.reader import TextReader
from attention_apps.applications.summarization.summary import Summary
from attention_apps.constants import SPECIAL_TOKENS
from attention_apps.data import DataCheck
from attention_apps.models import Seq2Seq, TextEncoder, TransformerEncoder
from attention_apps.models.decoder_config import make_decoder
from attention_apps.models.keras_hub_seq2seq import HubTokens, make_keras_hub_model
from attention_apps.preprocessing import text
from attention_apps.preprocessing.text import JOINER
from attention_apps.preprocessing.vocabulary import Vocabulary

# The maximum length of a summary, in training and in use, unless the configuration sets another.
_MAX_LENGTH = 64
# The prefixes of sub-words that follow a space.
_SPACES = ("Ġ", "▁")


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


class TextSummarizer(Application[SummarizerConfig]):
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
    parts = Parts(reader=TextReader, codec=SummaryCodec, model=make_model, examples=SummaryExamples)

    @classmethod
    def from_keras_hub(cls, model: Any, config: SummarizerConfig | None = None) -> Self:
        """Make a summarizer from a pretrained KerasHub model, with our search, training and alignments.

        It reads and writes the sub-words of the model's own tokenizer, without copying.

        Args:
            model: a `Seq2SeqLM` with its preprocessor (BART, T5, T5Gemma), or the name or folder of its preset.
            config: only `decoding`, `output`, `training`, `max_source_length` and `decoder.max_length`, the longest
                summary, are used.
        """
        import keras_hub

        if isinstance(model, str | os.PathLike):
            model = keras_hub.models.Seq2SeqLM.from_preset(os.fspath(model))
        if not isinstance(model, keras_hub.models.Seq2SeqLM):
            received = type(model).__name__
            raise TypeError(f"`model` must be a `Seq2SeqLM` of KerasHub, or a preset of one. Received: {received}")
        if model.preprocessor is None:
            message = "`model` must have its preprocessor, which holds the tokenizer. Received: preprocessor=None"
            raise ValueError(message)
        tokenizer = HubTokenizer(model)
        parts = Parts(
            reader=partial(TextReader, tokenize=tokenizer.tokenize),
            codec=partial(HubCodec, tokenizer=tokenizer),
            model=lambda config, _: make_keras_hub_model(model, tokenizer.hub_tokens, config.decoder.max_length),
            examples=_make_examples_class(tokenizer),
        )
        return cls(config or _default_config(tokenizer), tokenizer.vocabulary, parts)

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


class HubTokenizer:
    """The sub-words of a KerasHub model, with unique names.

    The name of a sub-word is its text, with a leading joiner mark if no space precedes it.

    Args:
        language_model: a `Seq2SeqLM` with its preprocessor.
    """

    def __init__(self, language_model: Any):
        self.language_model = language_model
        self.tokenizer = language_model.preprocessor.tokenizer
        self.hub_tokens = HubTokens.of(language_model.preprocessor)
        # A unique name for each of our ids after the special tokens.
        hub_ids = self.hub_tokens.hub_ids[len(SPECIAL_TOKENS) :]
        spelled = self.tokenizer.detokenize(tf.ragged.constant([[index] for index in hub_ids], tf.int32))
        spelled = tf.convert_to_tensor(spelled, tf.string).numpy()  # outside a graph, KerasHub returns a list
        names: list[str] = []
        used = set(SPECIAL_TOKENS)
        for index, line in zip(hub_ids, (line.decode("utf-8", "replace") for line in spelled), strict=True):
            piece = self.tokenizer.id_to_token(index)
            plain = ("" if piece.startswith(_SPACES) else JOINER) + line.strip()
            candidates = (plain if line.strip() and "\ufffd" not in line else "", piece, f"<{index}>")
            name = next(name for name in candidates if name and name.isprintable() and name not in used)
            names.append(name)
            used.add(name)
        self.vocabulary = Vocabulary(names)

    def tokenize(self, strings: tf.Tensor | Sequence[str | bytes]) -> tf.RaggedTensor:
        """Return the sub-words of each text, `(batch, None)`. In a graph it uses ops of TensorFlow Text."""
        texts = text.normalize(strings)
        if tf.inside_function():
            with tf.init_scope():  # the tables that it creates on first use must not belong to a graph
                self.tokenizer._maybe_initialized_tf()
            ids = tf.cast(self.tokenizer(texts), tf.int32)
        else:
            lines = [line.decode() for line in texts.numpy()]
            ids = [list(row) for row in self.tokenizer(lines)] if lines else []
            ids = tf.ragged.constant(ids, tf.int32, ragged_rank=1)
        return tf.gather(tf.constant(self.vocabulary.tokens), tf.gather(self.hub_tokens.our_ids, ids))


class HubCodec(SummaryCodec):
    """Reads and writes the sub-words of a KerasHub model, without copying."""

    packages = ("tensorflow_text",)

    def __init__(self, config: SummarizerConfig, vocabulary: Vocabulary, tokenizer: HubTokenizer):
        self.config = config
        self.vocabulary = self.model_vocabulary = vocabulary
        self.tokenizer = tokenizer
        self.first_position = len(tokenizer.hub_tokens.before_source)
        self.resources = (vocabulary.table, tokenizer.tokenizer)

    def prepare(self, source: Tensors) -> Tensors:
        return {"token_ids": self.vocabulary.lookup(source["tokens"])}

    def search_options(self, options: SummaryDecodingOptions) -> SummaryDecodingOptions:
        """Reject lengths that do not fit into the decoder's cache."""
        longest = self.config.decoder.max_length - len(self.tokenizer.hub_tokens.before_start)
        if options.max_length > longest:
            raise ValueError(
                f"`max_length` must be at most {longest}. Set `decoder.max_length` in the configuration for longer "
                f"summaries. Received: max_length={options.max_length}"
            )
        return options

    def words(self, token_ids: tf.Tensor, source: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
        names = tf.constant(["" if name in SPECIAL_TOKENS else name for name in self.vocabulary.tokens])
        return tf.gather(names, token_ids), tf.zeros_like(token_ids, tf.bool)

    def texts(self, token_ids: tf.Tensor, source: Tensors) -> tf.Tensor:
        hub_ids, hub_tokenizer = self.tokenizer.hub_tokens.hub_ids, self.tokenizer.tokenizer
        rows = tf.reshape(token_ids, [-1, tf.shape(token_ids)[-1]])
        pieces = tf.ragged.boolean_mask(tf.gather(hub_ids, rows), rows >= len(SPECIAL_TOKENS))
        texts = tf.convert_to_tensor(hub_tokenizer.detokenize(pieces), tf.string)
        return tf.reshape(text.normalize(texts), tf.shape(token_ids)[:2])

    def save(self, folder: str | os.PathLike) -> None:
        """Write a KerasHub preset, which `from_keras_hub` and KerasHub can read."""
        self.tokenizer.language_model.save_to_preset(os.fspath(folder))


def _make_examples_class(tokenizer: HubTokenizer) -> type[SummaryExamples]:
    """Return the class of examples for a KerasHub model, whose vocabulary is fixed."""

    class HubExamples(SummaryExamples):
        has_fixed_vocabulary = True  # sub-words can encode any text
        tokenize = tokenizer.tokenize
        model_form = staticmethod(tf.identity)

        def read_column(self, name: str) -> Iterable[list[bytes]]:
            if name == self.columns[0]:
                return super().read_column(name)
            return ([token.encode() for token in tokens] for tokens in self.target_tokens(None))

        @staticmethod
        def data_check(config: SummarizerConfig, codec: Any) -> DataCheck:
            return DataCheck(
                "document",
                "summary",
                tokenize=lambda line: [name.decode() for name in tokenizer.tokenize([line]).to_list()[0]],
                max_target_length=config.decoder.max_length - len(tokenizer.hub_tokens.before_start) - 1,
            )

    return HubExamples


def _default_config(tokenizer: HubTokenizer) -> SummarizerConfig:
    """Return the configuration of a new summarizer, with the source length of the model's preprocessor."""
    preprocessor, tokens = tokenizer.language_model.preprocessor, tokenizer.hub_tokens
    frame = len(tokens.before_source) + len(tokens.after_source)
    room = min(preprocessor.decoder_sequence_length, _MAX_LENGTH)
    default = SummarizerConfig()
    return dataclasses.replace(
        default,
        max_source_length=preprocessor.encoder_sequence_length - frame,
        decoder=dataclasses.replace(default.decoder, max_length=room),
        decoding=SummaryDecodingOptions(max_length=room - len(tokens.before_start)),
    )
