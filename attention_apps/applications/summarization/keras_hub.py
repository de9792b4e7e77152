"""Pretrained KerasHub models as summarizers, with their own codec and model."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from attention_apps.applications.parts import Parts, Tensors
from attention_apps.applications.summarization.codec import SummaryCodec, word_limit
from attention_apps.applications.summarization.config import SummarizerConfig, SummaryDecodingOptions
from attention_apps.applications.summarization.examples import SummaryExamples
from attention_apps.applications.summarization.reader import TextReader
from attention_apps.constants import SPECIAL_TOKENS
from attention_apps.data import DataCheck, Row
from attention_apps.models import Seq2Seq
from attention_apps.models.keras_hub_seq2seq import HubTokens, make_keras_hub_model
from attention_apps.preprocessing import text
from attention_apps.preprocessing.text import JOINER
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.preprocessing.word_forms import TextCorpus, tokens_of

# The maximum length of a summary, in training and in use, unless the configuration sets another.
_MAX_LENGTH = 64
# The prefixes of sub-words that follow a space.
_SPACES = ("Ġ", "▁")


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
        self.vocabulary = Vocabulary(_names(self.tokenizer, self.hub_tokens))

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

    def detokenize(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Convert ids `(batch, num_best, target)` to texts."""
        rows = tf.reshape(token_ids, [-1, tf.shape(token_ids)[-1]])
        pieces = tf.ragged.boolean_mask(tf.gather(self.hub_tokens.hub_ids, rows), rows >= len(SPECIAL_TOKENS))
        return tf.reshape(text.normalize(_detokenized(self.tokenizer, pieces)), tf.shape(token_ids)[:2])


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

    def scorers(self, memory: Tensors, options: SummaryDecodingOptions) -> Sequence[Any]:
        if not options.min_words and options.max_words is None:
            return ()
        nothing_to_copy = tf.zeros([tf.shape(memory["mask"])[0], 0], tf.int32)
        return (word_limit(self.vocabulary, nothing_to_copy, options.min_words, options.max_words),)

    def words(self, token_ids: tf.Tensor, source: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
        names = tf.constant(["" if name in SPECIAL_TOKENS else name for name in self.vocabulary.tokens])
        return tf.gather(names, token_ids), tf.zeros_like(token_ids, tf.bool)

    def texts(self, token_ids: tf.Tensor, source: Tensors) -> tf.Tensor:
        return self.tokenizer.detokenize(token_ids)

    def save(self, folder: str | os.PathLike) -> None:
        """Write a KerasHub preset, which `from_keras_hub` and KerasHub can read."""
        self.tokenizer.language_model.save_to_preset(os.fspath(folder))


def _make_examples_class(tokenizer: HubTokenizer) -> type[SummaryExamples]:
    """Return the class of examples for a KerasHub model, whose vocabulary is fixed."""

    class HubExamples(SummaryExamples):
        @staticmethod
        def make_corpus(rows: Sequence[Row]) -> TextCorpus:
            columns = ([row[name] for row in rows] for name in ("document", "summary"))
            documents, summaries = (tokens_of(column, tokenizer.tokenize) for column in columns)
            return TextCorpus(documents, summaries, model_form=tf.identity)

        @staticmethod
        def data_check(config: SummarizerConfig, codec: Any) -> DataCheck:
            longest = config.decoder.max_length - len(tokenizer.hub_tokens.before_start) - 1
            return DataCheck("document", "summary", tokenize=_pieces, max_target_length=longest)

        def new_words(self, codec: Any) -> Iterable[str]:
            return ()

        def unknown_rates(self, codec: Any) -> dict[str, float]:
            return {}  # sub-words can encode any text

    def _pieces(line: str) -> list[str]:
        return [name.decode() for name in tokenizer.tokenize([line]).to_list()[0]]

    return HubExamples


def keras_hub_parts(model: Any, config: SummarizerConfig | None) -> tuple[SummarizerConfig, Vocabulary, Parts]:
    """Return the configuration, vocabulary and parts for a `Seq2SeqLM`, or for the name or folder of its preset."""
    import keras_hub

    if isinstance(model, str | os.PathLike):
        model = keras_hub.models.Seq2SeqLM.from_preset(os.fspath(model))
    if not isinstance(model, keras_hub.models.Seq2SeqLM):
        received = type(model).__name__
        raise TypeError(f"`model` must be a `Seq2SeqLM` of KerasHub, or a preset of one. Received: {received}")
    if model.preprocessor is None:
        raise ValueError("`model` must have its preprocessor, which holds the tokenizer. Received: preprocessor=None")
    tokenizer = HubTokenizer(model)

    def make_model(config: SummarizerConfig, vocabulary: Vocabulary) -> Seq2Seq:
        return make_keras_hub_model(model, tokenizer.hub_tokens, config.decoder.max_length)

    parts = Parts(
        reader=partial(TextReader, tokenize=tokenizer.tokenize),
        codec=partial(HubCodec, tokenizer=tokenizer),
        model=make_model,
        examples=_make_examples_class(tokenizer),
    )
    config = _config_for(model, tokenizer.hub_tokens) if config is None else config
    return config, tokenizer.vocabulary, parts


def _config_for(language_model, hub_tokens):
    """Return the configuration of a new summarizer, with the source length of the model's preprocessor."""
    preprocessor = language_model.preprocessor
    frame = len(hub_tokens.before_source) + len(hub_tokens.after_source)
    room = min(preprocessor.decoder_sequence_length, _MAX_LENGTH)
    default = SummarizerConfig()
    return dataclasses.replace(
        default,
        max_source_length=preprocessor.encoder_sequence_length - frame,
        decoder=dataclasses.replace(default.decoder, max_length=room),
        decoding=SummaryDecodingOptions(max_length=room - len(hub_tokens.before_start)),
    )


def _names(tokenizer, hub_tokens):
    """Return a unique name for each of our ids after the special tokens."""
    hub_ids = hub_tokens.hub_ids[len(SPECIAL_TOKENS) :]
    raw = [tokenizer.id_to_token(index) for index in hub_ids]
    spelled = _detokenized(tokenizer, tf.ragged.constant([[index] for index in hub_ids], tf.int32))
    spelled = [line.decode("utf-8", "replace") for line in spelled.numpy()]
    used = set(SPECIAL_TOKENS)
    for index, piece, line in zip(hub_ids, raw, spelled, strict=True):
        plain = ("" if piece.startswith(_SPACES) else JOINER) + line.strip()
        candidates = (plain if line.strip() and "\ufffd" not in line else "", piece, f"<{index}>")
        name = next(name for name in candidates if name and name.isprintable() and name not in used)
        used.add(name)
        yield name


def _detokenized(tokenizer, ids):
    """Convert ragged ids to texts. Outside a graph, KerasHub returns a list."""
    return tf.convert_to_tensor(tokenizer.detokenize(ids), tf.string)
