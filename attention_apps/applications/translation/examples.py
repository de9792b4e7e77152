"""Pairs of texts as training examples."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.applications.parts import Examples
from attention_apps.applications.translation.codec import TranslationCodec
from attention_apps.applications.translation.config import TranslatorConfig
from attention_apps.constants import END, START
from attention_apps.data import Batches, DataCheck, Row
from attention_apps.metrics import MetricResult, chrf, sacre_bleu
from attention_apps.models import Seq2Seq
from attention_apps.preprocessing.sub_words import learn_word_pieces, split_words
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.preprocessing.word_forms import TextColumn, TextCorpus, tokens_of
from attention_apps.training.config import TrainingConfig

# How many random segmentations of each word training chooses from, if there is `piece_dropout`.
_SEGMENTATIONS = 16


class TranslationExamples(Examples):
    """One example for each row: the pieces of the words of both texts. Training reads a row as a whole.

    Args:
        rows: of a manifest, with `source` and `target`.
    """

    columns = ("source", "target")
    reward_metric = "bleu_4"
    has_fixed_vocabulary = True  # pieces make up any word

    def __init__(self, rows: Sequence[Row], config: TranslatorConfig):
        super().__init__(rows, config)
        sources, targets = (tokens_of([row[name] for row in rows], split_words) for name in self.columns)
        self.corpus = TextCorpus(sources, targets, model_form=tf.identity)
        self._source_names = ("token_ids", "source_ids") if config.decoder.copying else ("token_ids",)

    # What is particular about the data

    @staticmethod
    def data_check(config: TranslatorConfig, codec: Any) -> DataCheck:
        longest = config.max_sentence_length

        def reject(row: Row, length: float | None) -> str | None:
            for name in TranslationExamples.columns:
                size = len(row[name].encode("utf-8", "surrogatepass"))
                if size > longest:
                    return f"`{name}` has {size:,} bytes, more than {longest:,}, the `max_sentence_length`"
            return None

        return DataCheck("source", "target", reject=reject)

    @staticmethod
    def metrics(texts: list[str], references: list[list[str]], sources: list[str]) -> dict[str, MetricResult]:
        return {"sacre_bleu": sacre_bleu(texts, references), "chrf": chrf(texts, references)}

    def make_vocabulary(self) -> Vocabulary:
        columns = (self.corpus.documents, self.corpus.summaries)
        sentences = (
            [self.corpus.words[code] for code in column[index]] for column in columns for index in range(len(column))
        )
        return learn_word_pieces(sentences, self.config.vocabulary_size)

    # Examples

    def bind(self, codec: TranslationCodec, model: Seq2Seq, cache: Path, training: bool, quiet: bool) -> None:
        self.codec = codec
        words = tf.constant(self.corpus.words, tf.string, shape=[len(self.corpus.words)])
        dropout = self.config.piece_dropout if training else 0.0
        count = _SEGMENTATIONS if dropout else 1
        pieces = tf.concat([codec.word_pieces.segment(words, dropout, seed) for seed in range(count)], axis=0)
        self._pieces = TextColumn(pieces.flat_values.numpy(), pieces.row_lengths().numpy())

    def batches(self, training_config: TrainingConfig) -> Batches:
        ids = tf.TensorSpec((None,), tf.int32)
        lengths = []  # in pieces, the mean of the segmentations
        lengths_of_words = self._pieces.lengths.reshape(-1, len(self.corpus.words)).mean(axis=0)
        for column in (self.corpus.documents, self.corpus.summaries):
            ends = np.concatenate([[0], np.cumsum(lengths_of_words[column.codes])])
            lengths.append(np.diff(ends[column.starts]))
        return Batches(
            self,
            {"source": dict.fromkeys(self._source_names, ids), "tokens": ids},
            batch_size=training_config.batch_size,
            max_batch_length=training_config.max_batch_length,
            lengths=np.maximum(*lengths) + 1,  # the end token
            seed=training_config.seed,
            short_first_epochs=training_config.short_first_epochs,
            augment=self.augment if self.config.piece_dropout else None,
        )

    def __getitem__(self, index: int) -> dict[str, Any]:
        words = (self.corpus.documents[index], self.corpus.summaries[index])
        return {**self._example(*words), "words": words}

    def augment(self, example: Mapping[str, Any], random: np.random.Generator, epoch: int) -> dict[str, Any]:
        """Return an example with a random segmentation of each word."""
        count = len(self._pieces) // len(self.corpus.words)
        return self._example(
            *(words + len(self.corpus.words) * random.integers(count, size=len(words)) for words in example["words"])
        )

    def _example(self, *texts):
        source, target = (
            np.concatenate([self._pieces[code] for code in words] or [np.zeros(0, np.int32)]) for words in texts
        )
        return {
            "source": dict.fromkeys(self._source_names, source),
            "tokens": np.array([START, *target, END], np.int32),
        }
