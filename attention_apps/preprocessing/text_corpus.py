"""A tokenized corpus in compact form: each distinct token is stored once, and texts are arrays of token indices."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
import tensorflow as tf

from attention_apps.constants import SPECIAL_TOKENS, UNKNOWN
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.preprocessing.word_forms import (
    FIRST_CLASS,
    UNKNOWN_CLASSES,
    inside_sentences,
    lowercase,
    unknown_class_ids,
)

_CHUNK = 4096


def tokens_of(texts: Sequence[str], tokenize: Callable[[Sequence[str]], tf.RaggedTensor]) -> Iterator[list[bytes]]:
    """Yield the tokens of each text. Texts are tokenized in large batches."""
    for first in range(0, len(texts), _CHUNK):
        yield from tokenize(texts[first : first + _CHUNK]).to_list()


class TextColumn:
    """The texts of one column: the concatenated token indices of all texts, and where each text begins."""

    def __init__(self, codes: np.ndarray, lengths: np.ndarray):
        self.codes = codes
        self.lengths = lengths
        self.starts = np.concatenate([[0], np.cumsum(lengths)])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.codes[self.starts[index] : self.starts[index + 1]]


class TextCorpus:
    """Documents and summaries that share one table of words.

    Args:
        documents, summaries: the tokens of each text.
        model_form: graph code that converts tokens to the forms that the model sees.

    Attributes:
        words: the distinct tokens in their original spelling.
        documents, summaries: `TextColumn`s of indices into `words`.
        forms: the distinct forms.
        form_of: the index of each word's form.
    """

    def __init__(
        self,
        documents: Iterable[Sequence[bytes]],
        summaries: Iterable[Sequence[bytes]],
        model_form: Callable[[tf.Tensor], tf.Tensor] = lowercase,
    ):
        table: dict[bytes, int] = {}
        self.documents = _read_column(documents, table)
        self.summaries = _read_column(summaries, table)
        self.words = [word.decode() for word in table]
        forms: dict[str, int] = {}
        names = [form.decode() for form in model_form(self._table).numpy()]
        self.form_of = np.array([forms.setdefault(form, len(forms)) for form in names], np.int32)
        self.forms = list(forms)

    def make_vocabulary(self, size: int, min_count: int = 1) -> Vocabulary:
        """Return the most frequent forms in their usual spelling, after the classes of out-of-vocabulary words."""
        columns = (self.documents, self.summaries)
        counts = sum(np.bincount(column.codes, minlength=len(self.words)) for column in columns)
        totals = np.bincount(self.form_of, counts, len(self.forms)).astype(np.int64)
        order = sorted(range(len(self.forms)), key=lambda form: (-totals[form], self.forms[form]))
        spellings = self._usual_spellings(counts)
        special = {*SPECIAL_TOKENS, *UNKNOWN_CLASSES}
        chosen = [spellings[form] for form in order if totals[form] >= min_count and self.forms[form] not in special]
        return Vocabulary([*UNKNOWN_CLASSES, *chosen[: max(size - FIRST_CLASS - len(UNKNOWN_CLASSES), 0)]])

    def word_ids(self, vocabulary: Vocabulary) -> np.ndarray:
        """Return the id of each word in a vocabulary of forms. Out-of-vocabulary words have the id of `<unk>`."""
        return np.array(vocabulary.encode(self.forms), np.int32)[self.form_of]

    def encoder_ids(self, vocabulary: Vocabulary, by_form: bool = False) -> np.ndarray:
        """Return `word_ids`, but with the id of its class for each out-of-vocabulary word.

        Args:
            by_form: whether to classify the form instead of the original spelling.
        """
        ids = self.word_ids(vocabulary)
        words = tf.gather(tf.constant(self.forms), self.form_of) if by_form else self._table
        return np.where(ids == UNKNOWN, unknown_class_ids(words).numpy(), ids).astype(np.int32)

    def _usual_spellings(self, counts):
        """Return the most frequent spelling of each form, counted inside document sentences if it occurs there."""
        inside = np.zeros(len(self.words), np.int64)
        starts = self.documents.starts
        for first in range(0, len(self.documents), _CHUNK):
            lengths = self.documents.lengths[first : first + _CHUNK]
            codes = self.documents.codes[starts[first] : starts[first + len(lengths)]]
            tokens = tf.RaggedTensor.from_row_lengths(tf.gather(self._table, codes), lengths).to_tensor("")
            is_token = np.arange(tokens.shape[1]) < lengths[:, None]
            is_inside = inside_sentences(tokens).numpy()[is_token]
            inside += np.bincount(codes[is_inside], minlength=len(self.words))
        best: dict[int, tuple] = {}
        for code, form in enumerate(self.form_of.tolist()):
            rank = (inside[code], counts[code], self.words[code])
            if form not in best or rank > best[form]:
                best[form] = rank
        return [best[form][2] for form in range(len(self.forms))]

    @cached_property
    def _table(self):
        return tf.constant(self.words, tf.string, shape=[len(self.words)])


def _read_column(texts, table):
    codes, lengths = [np.zeros(0, np.int32)], []
    for tokens in texts:
        codes.append(np.array([table.setdefault(token, len(table)) for token in tokens], np.int32))
        lengths.append(len(tokens))
    return TextColumn(np.concatenate(codes), np.array(lengths, np.int64))
