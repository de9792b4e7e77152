"""Training examples: documents and their summaries."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.applications.parts import Examples
from attention_apps.applications.summarization.reader import Tokenize
from attention_apps.constants import END, START, UNKNOWN
from attention_apps.data import Batches, DataCheck, Row
from attention_apps.metrics import MetricResult, rouge
from attention_apps.models import Seq2Seq
from attention_apps.preprocessing import text
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.preprocessing.word_forms import TextCorpus, lowercase, to_model_forms, tokens_of
from attention_apps.training.config import TrainingConfig

# Examples share a batch if their source and target lengths are in the same classes.
_SOURCE_CLASSES, _TARGET_CLASSES = 16, 6
# `Batches` changes lengths at random by up to a tenth. Factors above 1.23 keep the classes apart.
_BETWEEN_CLASSES = 1.3


class SummaryExamples(Examples):
    """One example per row: the source ids, the ids that can be copied, and the target ids.

    Args:
        rows: rows of a manifest, with `document` and `summary`. Only the first tokens of a long document are used.
    """

    columns = ("document", "summary")
    reward_metric = "rouge"

    tokenize: Tokenize = staticmethod(text.tokenize)
    model_form: Callable[[tf.Tensor], tf.Tensor] = staticmethod(lowercase)
    # Whether the class of an out-of-vocabulary word is that of its form, not of its spelling.
    classifies_forms = False

    def __init__(self, rows: Sequence[Row], config: Any):
        super().__init__(rows, config)
        documents, summaries = map(self.read_column, self.columns)
        self.corpus = TextCorpus(documents, summaries, self.model_form)

    # What is particular about the data

    def read_column(self, name: str) -> Iterable[list[bytes]]:
        """Tokenize the texts of a column."""
        return tokens_of([row[name] for row in self.rows], self.tokenize)

    @staticmethod
    def data_check(config: Any, codec: Any) -> DataCheck:
        return DataCheck("document", "summary", max_target_length=config.max_summary_words)

    @staticmethod
    def metrics(texts: list[str], references: list[list[str]], sources: list[str]) -> dict[str, MetricResult]:
        return {f"rouge_{kind}": rouge(texts, references, kind) for kind in ("1", "2", "l")}

    def make_vocabulary(self) -> Vocabulary:
        return self.corpus.make_vocabulary(self.config.vocabulary_size, self.config.min_count)

    def new_words(self, codec: Any) -> Iterable[str]:
        found = self.corpus.make_vocabulary(self.config.vocabulary_size, self.config.min_new_count)
        forms = to_model_forms(found, codec.model_form).tokens
        return [word for word, form in zip(found.tokens, forms, strict=True) if form not in codec.model_vocabulary]

    def unknown_rates(self, codec: Any) -> dict[str, float]:
        unknown = self.corpus.word_ids(codec.model_vocabulary) == UNKNOWN
        columns = {"document": self.corpus.documents, "summary": self.corpus.summaries}
        return {name: float(unknown[column.codes].mean()) for name, column in columns.items() if column.codes.size}

    # Examples

    def bind(self, codec: Any, model: Seq2Seq, cache: Path, training: bool, quiet: bool) -> None:
        self.codec = codec
        self.vocabulary_size = len(codec.vocabulary)
        self._word_ids = self.corpus.word_ids(codec.model_vocabulary)
        self._encoder_ids = self.corpus.encoder_ids(codec.model_vocabulary, self.classifies_forms)

    def batches(self, training_config: TrainingConfig) -> Batches:
        ids = tf.TensorSpec((None,), tf.int32)
        sources = np.minimum(self.corpus.documents.lengths, self.config.max_source_length)
        targets = self.corpus.summaries.lengths
        classes = np.zeros(len(sources), int)  # of about equal size, for each pair of a source and a target class
        for of_examples, count in ((sources, _SOURCE_CLASSES), (targets, _TARGET_CLASSES)):
            edges = np.unique(np.quantile(of_examples, np.linspace(0, 1, count + 1)[1:-1], method="nearest"))
            classes = classes * count + np.searchsorted(edges, of_examples, side="left")
        return Batches(
            self,
            {"source": {"token_ids": ids, "source_ids": ids}, "tokens": ids},
            batch_size=training_config.batch_size,
            lengths=_BETWEEN_CLASSES**classes,
            seed=training_config.seed,
            short_first_epochs=training_config.short_first_epochs,
        )

    def sampled_texts(self, token_ids: Sequence[list[int]], indices: Sequence[int]) -> list[str]:
        ids = tf.ragged.constant(token_ids, tf.int32, ragged_rank=1).to_tensor()
        documents = [self.corpus.documents[index][: self.config.max_source_length] for index in indices]
        tokens = [[self.corpus.words[code].encode() for code in codes] for codes in documents]
        source = {"tokens": tf.ragged.constant(tokens, tf.string, ragged_rank=1).to_tensor("")}
        texts = self.codec.texts(ids[:, tf.newaxis], {**source, **self.codec.prepare(source)})
        return [line.decode() for line in texts.numpy()[:, 0]]

    def __getitem__(self, index: int) -> dict[str, Any]:
        document = self.corpus.documents[index][: self.config.max_source_length]
        word_ids, forms = self._word_ids[document], self.corpus.form_of[document]
        first: dict[int, int] = {}
        places = [first.setdefault(form, place) for place, form in enumerate(forms.tolist())]
        source_ids = np.where(word_ids == UNKNOWN, self.vocabulary_size + np.array(places, np.int32), word_ids)
        source = {"token_ids": self._encoder_ids[document], "source_ids": source_ids.astype(np.int32)}
        return {"source": source, "tokens": self._target(self.corpus.summaries[index], first)}

    def _target(self, summary: np.ndarray, first: Mapping[int, int]) -> np.ndarray:
        """Return ids of the extended vocabulary, between start and end."""
        ids = self._word_ids[summary].tolist()
        forms = self.corpus.form_of[summary].tolist()
        copied = [
            self.vocabulary_size + first[form] if word == UNKNOWN and form in first else word
            for word, form in zip(ids, forms, strict=True)
        ]
        return np.array([START, *copied, END], np.int32)
