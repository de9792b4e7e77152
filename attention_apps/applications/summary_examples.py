"""Documents and their summaries, as a summarizer's training takes them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.models.tokens import END, START, UNKNOWN
from attention_apps.preprocessing.text_corpus import TextCorpus
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.training.manifest import Row

# Examples share a batch if both their lengths fall into the same of these classes.
_SOURCE_CLASSES, _TARGET_CLASSES = 16, 6
# `Batches` shakes lengths by a tenth; factors above 1.23 between classes keep it from mixing them.
_BETWEEN_CLASSES = 1.3


class SummaryExamples:
    """One example for each row: what is read, what of it can be copied, and what is to be written.

    Args:
        rows: of a manifest, with `document` and `summary`.
        corpus: their tokens.
        vocabulary: of folded words.
        max_source_length: of a longer document, only so many tokens are read: its beginning.
    """

    def __init__(self, rows: Sequence[Row], corpus: TextCorpus, vocabulary: Vocabulary, max_source_length: int):
        self.rows = rows
        self.corpus = corpus
        self.max_source_length = max_source_length
        self.vocabulary_size = len(vocabulary)
        self._form_of = corpus.form_of
        self._word_ids = corpus.word_ids(vocabulary)
        self._encoder_ids = corpus.encoder_ids(vocabulary)

    @property
    def signature(self) -> dict[str, Any]:
        """What `Batches` needs to know of an example."""
        ids = tf.TensorSpec((None,), tf.int32)
        return {"source": {"token_ids": ids, "source_ids": ids}, "tokens": ids}

    @property
    def lengths(self) -> np.ndarray:
        """A number for each example, near for those alike in both lengths: padding either costs time."""
        sources = np.minimum(self.corpus.documents.lengths, self.max_source_length)
        classes = _classes(sources, _SOURCE_CLASSES) * _TARGET_CLASSES
        return _BETWEEN_CLASSES ** (classes + _classes(self.corpus.summaries.lengths, _TARGET_CLASSES))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        document = self.corpus.documents[index][: self.max_source_length]
        word_ids, forms = self._word_ids[document], self._form_of[document]
        first: dict[int, int] = {}
        places = [first.setdefault(form, place) for place, form in enumerate(forms.tolist())]
        source_ids = np.where(word_ids == UNKNOWN, self.vocabulary_size + np.array(places, np.int32), word_ids)
        source = {"token_ids": self._encoder_ids[document], "source_ids": source_ids.astype(np.int32)}
        return {"source": source, "tokens": self._target(self.corpus.summaries[index], first)}

    def references(self, index: int) -> list[str]:
        """The summary that people wrote."""
        return [self.rows[index]["summary"]]

    def name(self, index: int) -> str:
        return self.rows[index]["document"]

    def source_tokens(self, indices: Sequence[int]) -> tf.Tensor:
        """The tokens read of some examples, `(batch, source)`, padded with empty strings."""
        words, documents = self.corpus.words, self.corpus.documents
        tokens = [[words[code] for code in documents[index][: self.max_source_length]] for index in indices]
        return tf.ragged.constant(tokens, tf.string, ragged_rank=1).to_tensor("")

    def _target(self, summary, first):
        """Ids of the extended vocabulary, between start and end."""
        ids = self._word_ids[summary].tolist()
        forms = self._form_of[summary].tolist()
        copied = [
            self.vocabulary_size + first[form] if word == UNKNOWN and form in first else word
            for word, form in zip(ids, forms, strict=True)
        ]
        return np.array([START, *copied, END], np.int32)


def _classes(lengths, count):
    """Which of `count` classes of about equal size each length belongs to."""
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, count + 1)[1:-1], method="nearest"))
    return np.searchsorted(edges, lengths, side="left")
