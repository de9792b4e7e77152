"""Training examples: sentences, and which of their words are kept."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.applications.compression.codec import TagCodec
from attention_apps.applications.compression.config import CompressorConfig
from attention_apps.applications.parts import Reader, Reading, Source
from attention_apps.applications.summarization.examples import SummaryExamples
from attention_apps.applications.summarization.reader import TextShown, plain_token
from attention_apps.constants import END, START
from attention_apps.data import Batches, DataCheck, Row
from attention_apps.metrics import MetricResult, compression_rate, token_f1
from attention_apps.models.copying import DELETE, KEEP
from attention_apps.preprocessing.sentences import model_form, tokenize_sentence
from attention_apps.preprocessing.word_forms import tokens_of
from attention_apps.training.config import TrainingConfig


class CompressionExamples(SummaryExamples):
    """One example per row: the words of a sentence, and a tag for each word.

    Args:
        rows: rows of a manifest, with `document` and `summary`. Rows may have `keep`, a 0 or 1 for each word between
            spaces. Without it, the words of the summary are searched in the document.
    """

    reward_metric = "token_f1"

    tokenize = staticmethod(tokenize_sentence)
    model_form = staticmethod(model_form)
    classifies_forms = True

    # What is particular about the data

    def read_column(self, name: str) -> Iterator[list[bytes]]:
        """Tokenize the texts of a column. Rows with `keep` are split at spaces, the others like typed text."""
        typed = iter(tokens_of([row[name] for row in self.rows if "keep" not in row.values], self.tokenize))
        for row in self.rows:
            yield [word.encode() for word in row[name].split()] if "keep" in row.values else next(typed)

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

    # Examples

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

    def reading(self, index: int, reader: Reader, options: Any) -> Reading:
        """Return a document as a live call reads it, but the words of a row with `keep` as one sentence."""
        row = self.rows[index]
        if "keep" not in row.values:
            return super().reading(index, reader, options)
        tokens = [word.encode() for word in row["document"].split()]
        shown = TextShown(row["document"], [plain_token(token) for token in tokens])
        source = Source({"tokens": np.array(tokens, object)}, len(tokens), (0, len(tokens)))
        return Reading([source], row["document"], shown)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[index]
        if "keep" in row.values:
            keep = np.frombuffer(row["keep"].encode(), np.uint8) == ord("1")
        else:
            columns = (self.corpus.documents, self.corpus.summaries)
            keep = np.array(_align(*(self.corpus.form_of[column[index]].tolist() for column in columns)))
        tokens = np.concatenate([[START], np.where(keep, KEEP, DELETE), [END]]).astype(np.int32)
        return {"source": {"token_ids": self._encoder_ids[self.corpus.documents[index]]}, "tokens": tokens}


def _problem_with(row: Row) -> str | None:
    """Return why a row cannot be used for training, or `None`."""
    if "keep" in row.values:
        keep, count = row["keep"], len(row["document"].split())
        if not isinstance(keep, str) or set(keep) - {"0", "1"} or len(keep) != count:
            return f"`keep` must be a text of {count} times 0 or 1. Received: {str(keep)[:40]!r}"
        return None
    document, summary = (model_form(tokenize_sentence([row[name]])).to_list()[0] for name in ("document", "summary"))
    if _align(document, summary) is None:
        return "`summary` must be `document` with some of its words left out"
    return None


def _align(document, summary):
    """Return whether each document word is in the summary, with the earliest match, or `None` if there is no match."""
    remaining, keep = list(reversed(summary)), []
    for word in document:
        keep.append(bool(remaining) and word == remaining[-1])
        if keep[-1]:
            remaining.pop()
    return None if remaining else keep
