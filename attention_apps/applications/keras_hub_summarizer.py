"""Pretrained models of KerasHub as summarizers."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import tensorflow as tf

from attention_apps.applications.summarizer_config import SummarizerConfig, SummaryOptions
from attention_apps.applications.summary_writer import SummaryWriter
from attention_apps.applications.text_summarizer import TextSummarizer
from attention_apps.applications.word_limit import word_limit
from attention_apps.models.keras_hub_seq2seq import HubTokens, make_keras_hub_model
from attention_apps.preprocessing import text
from attention_apps.preprocessing.text import JOINER
from attention_apps.preprocessing.text_corpus import TextCorpus, tokens_of
from attention_apps.preprocessing.vocabulary import SPECIAL_TOKENS, Vocabulary
from attention_apps.training.data_check import DataCheck
from attention_apps.training.manifest import Row

# A longer summary is neither written nor learned, unless the configuration says so.
_MAX_LENGTH = 64
# Pieces of words that begin with a space.
_SPACES = ("Ġ", "▁")


class KerasHubWriter(SummaryWriter):
    """How a KerasHub model reads, writes and learns: in the pieces of words of its own tokenizer.

    A piece has a name, which is its text, with a joiner mark before it where no space is.

    Args:
        language_model: a `Seq2SeqLM` with its preprocessor.
    """

    def __init__(self, config: SummarizerConfig, language_model: Any, hub_tokens: HubTokens):
        self.config = config
        self.language_model = language_model
        self.hub_tokens = hub_tokens
        self.tokenizer = language_model.preprocessor.tokenizer
        self.vocabulary = self.folded = Vocabulary(_names(self.tokenizer, hub_tokens))
        # Where the text begins in what the encoder reads.
        self.first_position = len(hub_tokens.before_source)

    def data_check(self, config: SummarizerConfig) -> DataCheck:
        longest = config.decoder.max_length - len(self.hub_tokens.before_start) - 1
        return DataCheck("document", "summary", tokenize=self._pieces, max_target_length=longest)

    def make_corpus(self, rows: Sequence[Row]) -> TextCorpus:
        """The pieces of a data set."""
        columns = ([row[name] for row in rows] for name in ("document", "summary"))
        return TextCorpus(*(tokens_of(column, self.tokenize) for column in columns), fold=tf.identity)

    def make_model(self) -> Any:
        return make_keras_hub_model(self.language_model, self.hub_tokens, self.config.decoder.max_length)

    def tokenize(self, strings: tf.Tensor | Sequence[str | bytes]) -> tf.RaggedTensor:
        """The names of the pieces of each text, `(batch, None)`; in a graph with ops of TensorFlow Text."""
        texts = text.normalise(strings)
        if tf.inside_function():
            with tf.init_scope():  # its tables, which it makes when they are first needed, belong to no graph
                self.tokenizer._maybe_initialized_tf()
            ids = tf.cast(self.tokenizer(texts), tf.int32)
        else:
            lines = [line.decode() for line in texts.numpy()]
            ids = [list(row) for row in self.tokenizer(lines)] if lines else []
            ids = tf.ragged.constant(ids, tf.int32, ragged_rank=1)
        return tf.gather(tf.constant(self.vocabulary.tokens), tf.gather(self.hub_tokens.our_ids, ids))

    def source(self, tokens: tf.Tensor) -> dict[str, tf.Tensor]:
        """What the encoder takes of pieces `(batch, source)`, padded with empty strings."""
        return {"token_ids": self.vocabulary.lookup(tokens)}

    def options(self, options: SummaryOptions) -> SummaryOptions:
        """The options of a search, which must fit into the decoder's cache."""
        most = self.config.decoder.max_length - len(self.hub_tokens.before_start)
        if options.max_length > most:
            raise ValueError(
                f"`max_length` must be at most {most}; `decoder.max_length` of the configuration makes room for more. "
                f"Received: max_length={options.max_length}"
            )
        return dataclasses.replace(options, sentences=None)

    def scorers(self, memory: Mapping[str, Any], options: SummaryOptions) -> list[Any]:
        if not options.min_words and options.max_words is None:
            return []
        nothing_to_copy = tf.zeros([tf.shape(memory["mask"])[0], 0], tf.int32)
        return [word_limit(self.vocabulary, nothing_to_copy, options.min_words, options.max_words)]

    def words(
        self, token_ids: tf.Tensor, source: Mapping[str, tf.Tensor], tokens: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The names of the pieces of hypotheses `(batch, beams, target)`, and that none is copied."""
        names = tf.constant(["" if name in SPECIAL_TOKENS else name for name in self.vocabulary.tokens])
        return tf.gather(names, token_ids), tf.zeros_like(token_ids, tf.bool)

    def texts(self, token_ids: tf.Tensor, source: Mapping[str, tf.Tensor], tokens: tf.Tensor) -> tf.Tensor:
        """The texts of hypotheses, `(batch, beams)`."""
        rows = tf.reshape(token_ids, [-1, tf.shape(token_ids)[-1]])
        pieces = tf.ragged.boolean_mask(tf.gather(self.hub_tokens.hub_ids, rows), rows >= len(SPECIAL_TOKENS))
        lines = text.normalise(_detokenized(self.tokenizer, pieces))
        return tf.reshape(lines, tf.shape(token_ids)[:2])

    def _pieces(self, line: str) -> list[str]:
        return [name.decode() for name in self.tokenize([line]).to_list()[0]]


class KerasHubSummarizer(TextSummarizer):
    """A `TextSummarizer` over a model of KerasHub; made by `TextSummarizer.from_keras_hub`.

    What it saves is a preset of KerasHub.
    """

    def __init__(self, language_model: Any, config: SummarizerConfig | None = None):
        hub_tokens = HubTokens.of(language_model.preprocessor)
        config = _config_for(language_model, hub_tokens) if config is None else config
        self._writer = KerasHubWriter(config, language_model, hub_tokens)
        super().__init__(config, self._writer.vocabulary)

    def save(self, folder: str | os.PathLike, card: str | None = None, half_precision: bool = False) -> None:
        """Writes the model as a preset of KerasHub, for `from_keras_hub` or KerasHub itself to read."""
        self._writer.language_model.save_to_preset(os.fspath(folder))

    def with_config(self, config: SummarizerConfig) -> Self:
        """Another summarizer of the same model, whose weights they share."""
        return type(self)(self._writer.language_model, config)

    @property
    def _way(self):
        return self._writer

    def _signatures(self, options):
        tokenizer = self._writer.tokenizer
        return {
            name: dataclasses.replace(
                signature, resources=(*signature.resources, tokenizer), packages=("tensorflow_text",)
            )
            for name, signature in super()._signatures(options).items()
        }

    def _data_check(self):
        return self._writer.data_check(self.config)

    def _new_words(self, rows):
        return ()

    def _unknown_rates(self, rows):
        return {}  # pieces of words make up any text

    def _corpus(self, rows, keep=False):
        return self._writer.make_corpus(rows)


def make_keras_hub_summarizer(model: Any, config: SummarizerConfig | None = None) -> KerasHubSummarizer:
    """The summarizer of a `Seq2SeqLM`, or of a preset's name or folder."""
    import keras_hub

    if isinstance(model, str | os.PathLike):
        model = keras_hub.models.Seq2SeqLM.from_preset(os.fspath(model))
    if not isinstance(model, keras_hub.models.Seq2SeqLM):
        received = type(model).__name__
        raise TypeError(f"`model` must be a `Seq2SeqLM` of KerasHub, or a preset of one. Received: {received}")
    if model.preprocessor is None:
        raise ValueError("`model` must have its preprocessor, which has the tokenizer. Received: preprocessor=None")
    return KerasHubSummarizer(model, config)


def _config_for(language_model, hub_tokens):
    """The configuration of a new summarizer: as much is read as the model's preprocessor packs."""
    preprocessor = language_model.preprocessor
    frame = len(hub_tokens.before_source) + len(hub_tokens.after_source)
    room = min(preprocessor.decoder_sequence_length, _MAX_LENGTH)
    default = SummarizerConfig()
    return dataclasses.replace(
        default,
        max_source_length=preprocessor.encoder_sequence_length - frame,
        decoder=dataclasses.replace(default.decoder, max_length=room),
        decoding=SummaryOptions(max_length=room - len(hub_tokens.before_start)),
    )


def _names(tokenizer, hub_tokens):
    """A name for each of our ids after the special ones, no two the same."""
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
    """The texts of ragged ids; outside of a graph, KerasHub gives a list."""
    return tf.convert_to_tensor(tokenizer.detokenize(ids), tf.string)
