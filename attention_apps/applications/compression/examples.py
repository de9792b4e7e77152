"""Training examples: sentences, and which of their words are kept."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.applications.compression.codec import TagCodec
from attention_apps.applications.compression.config import CompressorConfig
from attention_apps.applications.compression.reader import SentenceReader
from attention_apps.applications.parts import Examples, Reading
from attention_apps.applications.summarization.examples import corpus_reading, decode_samples
from attention_apps.constants import END, START, UNKNOWN
from attention_apps.data import Batches, DataCheck, Row
from attention_apps.metrics import MetricResult, compression_rate, token_f1
from attention_apps.models import Seq2Seq
from attention_apps.models.tag_decoder import DELETE, KEEP
from attention_apps.preprocessing.sentences import model_form, tokenize_sentence
from attention_apps.preprocessing.text_corpus import TextCorpus, tokens_of
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.training.config import TrainingConfig


class CompressionExamples(Examples):
    """One example per row: the words of a sentence, and a tag for each word.

    Args:
        rows: rows of a manifest, with `document` and `summary`. Rows may have `keep`, a 0 or 1 for each word between
            spaces. Without it, the words of the summary are searched in the document.
    """

    columns = ("document", "summary")
    reward_metric = "token_f1"
    source_signature = SentenceReader.signature

    def __init__(self, rows: Sequence[Row], config: CompressorConfig):
        super().__init__(rows, config)
        sentences, compressions = (_tokens(rows, column) for column in self.columns)
        self.corpus = TextCorpus(sentences, compressions, model_form=model_form)

    # What is particular about the data

    @staticmethod
    def data_check(config: CompressorConfig, codec: TagCodec | None) -> DataCheck:
        return DataCheck(
            "document",
            "summary",
            max_source_length=config.max_source_length,
            max_target_length=config.max_source_length,
            reject=lambda row, length: _problem_with(row),
        )

    @staticmethod
    def metrics(texts: list[str], references: list[list[str]], sources: list[str]) -> dict[str, MetricResult]:
        return {
            "token_f1": token_f1(texts, references),
            "compression_rate": compression_rate(texts, sources),
            "reference_rate": compression_rate([texts[0] for texts in references], sources),
        }

    def make_vocabulary(self) -> Vocabulary:
        return self.corpus.make_vocabulary(self.config.vocabulary_size, self.config.min_count)

    def new_words(self, codec: TagCodec) -> list[str]:
        found = self.corpus.make_vocabulary(self.config.vocabulary_size, self.config.min_new_count)
        forms = codec.forms(found)
        return [word for word, form in zip(found.tokens, forms, strict=True) if form not in codec.model_vocabulary]

    def unknown_rates(self, codec: TagCodec) -> dict[str, float]:
        unknown = self.corpus.word_ids(codec.model_vocabulary) == UNKNOWN
        columns = {"document": self.corpus.documents, "summary": self.corpus.summaries}
        return {name: float(unknown[column.codes].mean()) for name, column in columns.items() if column.codes.size}

    # Examples

    def bind(self, codec: TagCodec, model: Seq2Seq, cache: Path, training: bool, quiet: bool) -> None:
        self.codec = codec
        self._encoder_ids = self.corpus.encoder_ids(codec.model_vocabulary, by_form=True)

    def batches(self, training_config: TrainingConfig) -> Batches:
        ids = tf.TensorSpec((None,), tf.int32)
        return Batches(
            self,
            {"source": {"token_ids": ids}, "tokens": ids},
            batch_size=training_config.batch_size,
            lengths=self.corpus.documents.lengths,
            seed=training_config.seed,
            short_first_epochs=training_config.short_first_epochs,
        )

    def reading(self, index: int) -> Reading:
        return corpus_reading(self.corpus, index, self.rows[index]["document"], self.config.max_source_length)

    def sampled_texts(self, token_ids: Sequence[list[int]], indices: Sequence[int]) -> list[str]:
        return decode_samples(self, token_ids, indices)

    def __getitem__(self, index: int) -> dict[str, Any]:
        tags = np.where(self._keep(index), KEEP, DELETE)
        tokens = np.concatenate([[START], tags, [END]]).astype(np.int32)
        return {"source": {"token_ids": self._encoder_ids[self.corpus.documents[index]]}, "tokens": tokens}

    def _keep(self, index):
        row = self.rows[index]
        if "keep" in row.values:
            return np.frombuffer(row["keep"].encode(), np.uint8) == ord("1")
        forms = self.corpus.form_of
        keep = _align(forms[self.corpus.documents[index]].tolist(), forms[self.corpus.summaries[index]].tolist())
        return np.array(keep)


def _problem_with(row: Row) -> str | None:
    """Returns why a row cannot be used for training, or `None`."""
    if "keep" in row.values:
        keep, count = row["keep"], len(row["document"].split())
        if not isinstance(keep, str) or set(keep) - {"0", "1"} or len(keep) != count:
            return f"`keep` must be a text of {count} times 0 or 1. Received: {str(keep)[:40]!r}"
        return None
    document, summary = (model_form(tokenize_sentence([row[name]])).to_list()[0] for name in ("document", "summary"))
    if _align(document, summary) is None:
        return "`summary` must be `document` with some of its words left out"
    return None


def _tokens(rows: Sequence[Row], column: str) -> Iterator[list[bytes]]:
    """Yields the tokens of a column. Rows with `keep` are split at spaces, the others like typed text."""
    typed = iter(tokens_of([row[column] for row in rows if "keep" not in row.values], tokenize_sentence))
    for row in rows:
        yield [word.encode() for word in row[column].split()] if "keep" in row.values else next(typed)


def _align(document, summary):
    """Returns whether each document word is in the summary, with the earliest match, or `None` if there is no match."""
    remaining, keep = list(reversed(summary)), []
    for word in document:
        keep.append(bool(remaining) and word == remaining[-1])
        if keep[-1]:
            remaining.pop()
    return None if remaining else keep
