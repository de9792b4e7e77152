"""Sentences and which of their words are kept, as a compressor's training takes them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.models.tag_decoder import DELETE, KEEP
from attention_apps.models.tokens import END, START
from attention_apps.preprocessing.sentence_words import look, tokenize_sentence
from attention_apps.preprocessing.text_corpus import TextCorpus, tokens_of
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.training.manifest import Row


class DeletionExamples:
    """One example for each row: the words of a sentence, and a tag for each.

    Args:
        rows: of a manifest, with `document` and `summary`; where a row has `keep`, a 0 or 1 for each word between
            spaces, that decides, else the summary's words are looked for in the document.
        corpus: their tokens, of `make_corpus`.
        vocabulary: of forms.
    """

    def __init__(self, rows: Sequence[Row], corpus: TextCorpus, vocabulary: Vocabulary):
        self.rows = rows
        self.corpus = corpus
        self._encoder_ids = corpus.encoder_ids(vocabulary, by_form=True)

    @staticmethod
    def make_corpus(rows: Sequence[Row]) -> TextCorpus:
        """The tokens of a data set: those of rows with `keep` as they stand, the others split like typed text."""
        columns = ("document", "summary")
        return TextCorpus(*(_tokens(rows, column) for column in columns), fold=look)

    @staticmethod
    def problem_with(row: Row) -> str | None:
        """Why a row cannot be learned from, or `None`."""
        if "keep" in row.values:
            keep, count = row["keep"], len(row["document"].split())
            if not isinstance(keep, str) or set(keep) - {"0", "1"} or len(keep) != count:
                return f"`keep` must be a text of {count} times 0 or 1. Received: {str(keep)[:40]!r}"
            return None
        document, summary = (look(tokenize_sentence([row[name]])).to_list()[0] for name in ("document", "summary"))
        if _align(document, summary) is None:
            return "`summary` must be `document` with some of its words left out"
        return None

    @property
    def signature(self) -> dict[str, Any]:
        """What `Batches` needs to know of an example."""
        ids = tf.TensorSpec((None,), tf.int32)
        return {"source": {"token_ids": ids}, "tokens": ids}

    @property
    def lengths(self) -> np.ndarray:
        return self.corpus.documents.lengths

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        tags = np.where(self._keep(index), KEEP, DELETE)
        tokens = np.concatenate([[START], tags, [END]]).astype(np.int32)
        return {"source": {"token_ids": self._encoder_ids[self.corpus.documents[index]]}, "tokens": tokens}

    def references(self, index: int) -> list[str]:
        """The compression of the data set."""
        return [self.rows[index]["summary"]]

    def name(self, index: int) -> str:
        return self.rows[index]["document"]

    def source_tokens(self, indices: Sequence[int]) -> tf.Tensor:
        """The tokens of some sentences, `(batch, source)`, padded with empty strings."""
        words, documents = self.corpus.words, self.corpus.documents
        tokens = [[words[code] for code in documents[index]] for index in indices]
        return tf.ragged.constant(tokens, tf.string, ragged_rank=1).to_tensor("")

    def _keep(self, index):
        row = self.rows[index]
        if "keep" in row.values:
            return np.frombuffer(row["keep"].encode(), np.uint8) == ord("1")
        forms = self.corpus.form_of
        keep = _align(forms[self.corpus.documents[index]].tolist(), forms[self.corpus.summaries[index]].tolist())
        return np.array(keep)


def _tokens(rows, column):
    typed = iter(tokens_of([row[column] for row in rows if "keep" not in row.values], tokenize_sentence))
    for row in rows:
        yield [word.encode() for word in row[column].split()] if "keep" in row.values else next(typed)


def _align(document, summary):
    """Whether each word of the document is one of the summary's, the earliest of several; `None` if they differ."""
    remaining, keep = list(reversed(summary)), []
    for word in document:
        keep.append(bool(remaining) and word == remaining[-1])
        if keep[-1]:
            remaining.pop()
    return None if remaining else keep
