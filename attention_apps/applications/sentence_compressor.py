"""Summaries by deletion: the words that are kept, as the user typed them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from attention_apps.applications.deletion_examples import DeletionExamples
from attention_apps.applications.deletion_scorer import deletion_scorer
from attention_apps.applications.summarizer_config import SummarizerConfig, SummaryOptions
from attention_apps.metrics import MetricResult, compression_rate, token_f1
from attention_apps.models import Seq2Seq, TextEncoder
from attention_apps.models.tag_decoder import KEEP, TagDecoder
from attention_apps.models.tokens import UNKNOWN
from attention_apps.preprocessing.sentence_words import join_kept, look, tokenize_sentence
from attention_apps.preprocessing.text_corpus import TextCorpus
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.preprocessing.word_forms import fold_vocabulary, kind_ids
from attention_apps.training.data_check import DataCheck
from attention_apps.training.manifest import Row


class SentenceCompressor:
    """How a `TextSummarizer` of the method "delete" reads, writes and learns.

    Args:
        vocabulary: the words it knows; it sees them in lower case, and numbers as `##`.
    """

    make_corpus = staticmethod(DeletionExamples.make_corpus)
    tokenize = staticmethod(tokenize_sentence)
    # Where the text begins in what the encoder reads.
    first_position = 0
    # What self-critical training rewards.
    reward_metric = "token_f1"

    def __init__(self, config: SummarizerConfig, vocabulary: Vocabulary):
        self.config = config
        self.vocabulary = vocabulary
        self.folded = fold_vocabulary(vocabulary, look)

    @staticmethod
    def data_check(config: SummarizerConfig) -> DataCheck:
        return DataCheck(
            "document",
            "summary",
            max_source_length=config.max_source_length,
            max_target_length=config.max_source_length,
            reject=lambda row, length: DeletionExamples.problem_with(row),
        )

    def make_model(self) -> Seq2Seq:
        config = self.config
        encoder = TextEncoder(
            len(self.vocabulary),
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

    def examples(self, rows: Sequence[Row], corpus: TextCorpus) -> DeletionExamples:
        return DeletionExamples(rows, corpus, self.folded)

    @staticmethod
    def forms(vocabulary: Vocabulary) -> tuple[str, ...]:
        """The forms of a vocabulary's words."""
        return fold_vocabulary(vocabulary, look).tokens

    def source(self, tokens: tf.Tensor) -> dict[str, tf.Tensor]:
        """What the encoder takes of tokens `(batch, source)`, padded with empty strings; graph code."""
        seen = look(tokens)
        token_ids = self.folded.lookup(seen)
        return {"token_ids": tf.where(token_ids == UNKNOWN, kind_ids(seen), token_ids)}

    def options(self, options: SummaryOptions) -> SummaryOptions:
        """The options of a search over tags: as many as there are words, and any of the two again and again."""
        most = self.config.max_source_length + 1
        return dataclasses.replace(
            options, max_length=most, min_length=1, no_repeat_ngram_size=0, banned_tokens=(), sentences=None
        )

    def scorers(self, memory: Mapping[str, Any], options: SummaryOptions) -> list[Any]:
        if not (options.keep_bias or options.min_words or options.max_words):
            return []
        return [deletion_scorer(memory["mask"], options)]

    def words(
        self, token_ids: tf.Tensor, source: Mapping[str, tf.Tensor], tokens: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The kept words of hypotheses `(batch, beams, source)`, empty strings between them, and that all are copies.

        Graph code.
        """
        keep = self._keep(token_ids, tokens)
        return tf.where(keep, tokens[:, tf.newaxis], ""), keep

    def texts(self, token_ids: tf.Tensor, source: Mapping[str, tf.Tensor], tokens: tf.Tensor) -> tf.Tensor:
        """The texts of hypotheses, `(batch, beams)`; graph code."""
        keep = self._keep(token_ids, tokens)
        return join_kept(tf.broadcast_to(tokens[:, tf.newaxis], tf.shape(keep)), keep)

    @staticmethod
    def metrics(texts: list[str], references: list[list[str]], sources: list[str]) -> dict[str, MetricResult]:
        return {
            "token_f1": token_f1(texts, references),
            "compression_rate": compression_rate(texts, sources),
            "reference_rate": compression_rate([texts[0] for texts in references], sources),
        }

    @staticmethod
    def _keep(token_ids, tokens):
        """Whether each source token is kept, `(batch, beams, source)`."""
        missing = tf.maximum(tf.shape(tokens)[1] - tf.shape(token_ids)[2], 0)
        tags = tf.pad(token_ids, [[0, 0], [0, 0], [0, missing]])[..., : tf.shape(tokens)[1]]
        return (tags == KEEP) & (tokens != "")[:, tf.newaxis]
