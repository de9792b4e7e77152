"""Summaries in words of the model's own, and in words copied from the text."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from attention_apps.applications.summarizer_config import SummarizerConfig, SummaryOptions
from attention_apps.applications.summary_examples import SummaryExamples
from attention_apps.applications.word_limit import word_limit
from attention_apps.metrics import MetricResult, rouge
from attention_apps.models import Seq2Seq, TextEncoder
from attention_apps.models.decoder_config import make_decoder
from attention_apps.models.tokens import UNKNOWN
from attention_apps.models.transformer_encoder import TransformerEncoder
from attention_apps.preprocessing import text
from attention_apps.preprocessing.extended_vocabulary import source_ids
from attention_apps.preprocessing.text_corpus import TextCorpus, tokens_of
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.preprocessing.word_forms import KIND_IDS, fold, fold_vocabulary, kind_ids, spell
from attention_apps.training.data_check import DataCheck
from attention_apps.training.manifest import Row


class SummaryWriter:
    """How a `TextSummarizer` of the method "generate" reads, writes and learns.

    Args:
        vocabulary: words in their usual spelling; the model knows them folded.
    """

    tokenize = staticmethod(text.tokenize)
    # Where the text begins in what the encoder reads.
    first_position = 0
    # What self-critical training rewards.
    reward_metric = "rouge"

    def __init__(self, config: SummarizerConfig, vocabulary: Vocabulary):
        self.config = config
        self.vocabulary = vocabulary
        self.folded = fold_vocabulary(vocabulary)

    @staticmethod
    def data_check(config: SummarizerConfig) -> DataCheck:
        return DataCheck("document", "summary", max_target_length=config.max_summary_words)

    @staticmethod
    def make_corpus(rows: Sequence[Row]) -> TextCorpus:
        """The tokens of a data set."""
        columns = ([row[name] for row in rows] for name in ("document", "summary"))
        return TextCorpus(*(tokens_of(column, text.tokenize) for column in columns))

    def make_model(self) -> Seq2Seq:
        config, size = self.config, len(self.vocabulary)
        encoder, decoder = _make_encoder(config, size), make_decoder(config.decoder, size)
        model = Seq2Seq(encoder, decoder, config.shared_embedding)
        ids = (None, None)
        model.build({"source": {"token_ids": ids, "source_ids": ids}, "tokens": ids})
        return model

    def examples(self, rows: Sequence[Row], corpus: TextCorpus) -> SummaryExamples:
        return SummaryExamples(rows, corpus, self.folded, self.config.max_source_length)

    @staticmethod
    def forms(vocabulary: Vocabulary) -> tuple[str, ...]:
        """The forms of a vocabulary's words."""
        return fold_vocabulary(vocabulary).tokens

    def source(self, tokens: tf.Tensor) -> dict[str, tf.Tensor]:
        """What the encoder takes of tokens `(batch, source)`, padded with empty strings; graph code."""
        token_ids, copied_ids = source_ids(fold(tokens), self.folded)
        return {"token_ids": tf.where(token_ids == UNKNOWN, kind_ids(tokens), token_ids), "source_ids": copied_ids}

    def options(self, options: SummaryOptions) -> SummaryOptions:
        """The options of a search that never writes that a word is unknown."""
        banned = sorted({*options.banned_tokens, UNKNOWN, *KIND_IDS})
        return dataclasses.replace(options, banned_tokens=tuple(banned), sentences=None)

    def scorers(self, memory: Mapping[str, Any], options: SummaryOptions) -> list[Any]:
        if not options.min_words and options.max_words is None:
            return []
        return [word_limit(self.vocabulary, memory["source_ids"], options.min_words, options.max_words)]

    def words(
        self, token_ids: tf.Tensor, source: Mapping[str, tf.Tensor], tokens: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The words of hypotheses `(batch, beams, target)`, and which of them are copies; graph code."""
        return spell(token_ids, source["source_ids"], tokens, self.vocabulary)

    def texts(self, token_ids: tf.Tensor, source: Mapping[str, tf.Tensor], tokens: tf.Tensor) -> tf.Tensor:
        """The texts of hypotheses, `(batch, beams)`; graph code."""
        words, _ = self.words(token_ids, source, tokens)
        shape = tf.shape(words)
        return tf.reshape(text.detokenize(tf.reshape(words, [-1, shape[-1]])), shape[:2])

    @staticmethod
    def metrics(texts: list[str], references: list[list[str]], sources: list[str]) -> dict[str, MetricResult]:
        return {f"rouge_{kind}": rouge(texts, references, kind) for kind in ("1", "2", "l")}


def _make_encoder(config: SummarizerConfig, size: int):
    encoder = config.encoder
    shared = {"num_layers": encoder.num_layers, "dropout": encoder.dropout, "name": "encoder"}
    if config.encoder_kind == "recurrent":
        return TextEncoder(size, encoder.embedding_dim, encoder.units, cell=encoder.cell, **shared)
    return TransformerEncoder(
        size, encoder.embedding_dim, num_heads=encoder.num_heads, hidden_dim=encoder.hidden_dim, **shared
    )
