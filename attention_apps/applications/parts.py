"""The parts of an application, and the data that they exchange."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from attention_apps.applications.outputs import Limited, Tensors, clear_rows
from attention_apps.data import Batches, DataCheck, Row
from attention_apps.decoding import DecodingResult
from attention_apps.metrics import MetricResult
from attention_apps.models import Seq2Seq
from attention_apps.preprocessing.vocabulary import Vocabulary

# The status of a valid raw input.
OK = "ok"


@dataclass(frozen=True, eq=False)
class Source:
    """One input of the pipeline: a photo, a piece of a recording, a passage of a text.

    Attributes:
        tensors: arrays without a batch axis, or `None` if there is nothing to predict, as for silence.
        length: sources of similar length share a batch.
        place: the position of the source in its item, for `Codec.join`.
    """

    tensors: Mapping[str, np.ndarray] | None
    length: float = 1.0
    place: Any = None


@dataclass(frozen=True, eq=False)
class Reading:
    """The sources of one item, and other data of the item that its result shows."""

    sources: Iterable[Source]
    item: Any
    shown: Any = None


# The sources of an item, each with its outputs, or `None` if there was nothing to predict.
AnsweredParts = list[tuple[Source, dict[str, np.ndarray] | None]]


@dataclass(frozen=True, eq=False)
class RawInput:
    """One way to call an exported model.

    Attributes:
        in_graph: graph code that maps raw tensors to source tensors and a context. The context has at least `status`,
            strings `(batch,)`: `ok`, or the problem of the row. It never raises on data.
        specs: shape and type of each raw tensor.
        example: a valid call.
        notes: a description of each raw tensor.
    """

    in_graph: Callable[..., tuple[Tensors, Tensors]]
    specs: Mapping[str, tf.TensorSpec]
    example: Mapping[str, Sequence[Any]]
    notes: Mapping[str, str]


class Reader(Protocol):
    """Reads raw input.

    Attributes:
        signature: shape and type of a batch of source tensors. Axes of size `None` are padded.
        max_batch_length: the maximum total length of a batch, with all sources padded to the longest.
    """

    @property
    def signature(self) -> Mapping[str, tf.TensorSpec]: ...

    @property
    def max_batch_length(self) -> float: ...

    def read(self, item: Any, options: Any) -> Reading:
        """Read one item: a path, bytes, an array or a string.

        The sources may be a generator, so a long recording need not fit into memory.

        Raises:
            ValueError, TypeError or OSError: the item cannot be read. The message says why.
        """

    def raw_inputs(self) -> dict[str, RawInput]:
        """Return the ways to call an exported model, by the name of the signature."""


class Codec(ABC):
    """Converts between tokens and text. A task implements the abstract methods.

    Attributes:
        result: the class of the results. Given only an `error` and a `source`, it makes the result of a bad item.
        output_notes: a description of each output of an exported model.
        resources: lookup tables that the graph uses.
        packages: packages to import before an export is loaded.

    Args:
        config: the configuration of the application.
        vocabulary: all tokens of the output.
    """

    result: Callable[..., Any]
    output_notes: Mapping[str, str] = {}
    resources: Sequence[Any] = ()
    packages: Sequence[str] = ()

    def __init__(self, config: Any, vocabulary: Vocabulary):
        self.config = config
        self.vocabulary = vocabulary

    def prepare(self, source: Tensors) -> Tensors:
        """Graph code: converts source tensors to the input of the encoder."""
        return source

    def search_options(self, options: Any) -> Any:
        """Add the requirements of this task to the options, such as tokens that are never written."""
        return options

    def scorers(self, memory: Tensors, options: Any) -> Sequence[Any]:
        """Return additional scorers of the search."""
        return ()

    @abstractmethod
    def texts(self, token_ids: tf.Tensor, source: Tensors) -> tf.Tensor:
        """Graph code: converts hypotheses `(batch, num_best, target)` to strings `(batch, num_best)`."""

    @abstractmethod
    def outputs(self, source: Tensors, memory: Tensors, result: DecodingResult, forced: Tensors) -> Tensors:
        """Graph code: returns all outputs for a batch of sources, at least `text` and `score`.

        Args:
            source: the source tensors, with the result of `prepare`.
            memory: the memory of the encoder.
            result: the result of the search.
            forced: the result of a teacher-forced pass over the best tokens: `token_ids` `(batch, target)`,
                `attention`, `logits`.
        """

    @abstractmethod
    def join(self, reading: Reading, parts: AnsweredParts, options: Any) -> Any:
        """Build the result of an item from the outputs of its sources. `parts` may be empty."""

    def serve(self, outputs: Tensors, context: Tensors, options: Any) -> Tensors:
        """Graph code: returns the outputs of an exported model. Rows whose status is not `ok` have no text."""
        status = context["status"]
        return {**clear_rows(outputs, status != OK), "status": status}

    def files(self) -> dict[str, str]:
        """Return additional text files of a preset, by name."""
        return {}

    def take_files(self, texts: Mapping[str, str]) -> None:  # noqa: B027 # most codecs have none
        """Load the text files that `files` returned."""


@dataclass(frozen=True)
class Evaluation:
    """The texts predicted for a data set, their metrics and confidences, and the number of unusable rows."""

    metrics: dict[str, MetricResult]
    texts: list[str]
    references: list[list[str]]
    sources: list[str]
    confidences: list[float]
    skipped: int = 0


class Examples(ABC):
    """Rows of a manifest as training examples, with everything that is specific to the data of the task.

    Texts are tokenized once, by the data check or the constructor. `bind` converts tokens to ids as soon as there is a
    vocabulary. A task implements the abstract methods.

    Attributes:
        columns: our names of the source column and the target column.
        path_columns: the columns that contain file paths.
        reward_metric: the default reward of self-critical training.
        source_signature: shape and type of a batch of the sources that `reading` returns, if not that of the reader.
        reads_any_length: whether `reading` cuts long sources, so that evaluation has no limits of length.
        has_fixed_vocabulary: whether the tokens make up any text, so that no word is new or unknown.
        references: the reference texts of each example: by default the target column.
        words: the tokens of each target text, for the vocabulary.
        min_count: how often a word must occur to be in the vocabulary.
    """

    columns: tuple[str, str]
    path_columns: tuple[str, ...] = ()
    reward_metric: str
    source_signature: Mapping[str, tf.TensorSpec] | None = None
    reads_any_length: bool = False
    has_fixed_vocabulary: bool = False
    words: Iterable[Iterable[str]]
    min_count: int = 1
    codec: Any

    def __init__(self, rows: Sequence[Row], config: Any):
        self.rows = rows
        self.config = config
        self.references = [[row[self.columns[1]]] for row in rows]

    @staticmethod
    @abstractmethod
    def data_check(config: Any, codec: Any) -> DataCheck:
        """Return the data check of this task. Without a codec there is no vocabulary yet."""

    @staticmethod
    @abstractmethod
    def metrics(texts: list[str], references: list[list[str]], sources: list[str]) -> dict[str, MetricResult]:
        """Compute the metrics of the task. The first one selects the weights that training keeps."""

    def measure(self, results: Iterable[Any]) -> Evaluation:
        """Evaluate the results of all examples, given one by one, in order."""
        texts, sources, confidences = map(
            list,
            zip(
                *((result.text, result.source, getattr(result, "confidence", float("nan"))) for result in results),
                strict=True,
            ),
        )
        metrics = self.metrics(texts, self.references, sources)
        return Evaluation(metrics, texts, self.references, sources, confidences)

    def target_tokens(self, codec: Any) -> list[Sequence[str]]:
        """Return the tokens of each target text, which the data check has found if there was one."""
        tokenize = self.data_check(self.config, codec).tokenize
        return [tokenize(row[self.columns[1]]) if row.tokens is None else row.tokens for row in self.rows]

    def make_vocabulary(self) -> Vocabulary:
        """Build the vocabulary of a new application."""
        return Vocabulary.build(self.words, self.min_count)

    def new_words(self, codec: Any) -> Iterable[str]:
        """Return the words of the data that fine-tuning adds to the vocabulary."""
        return self.make_vocabulary().words

    def unknown_rates(self, codec: Any) -> dict[str, float]:
        """Return the fraction of out-of-vocabulary tokens for each text column."""
        return {self.columns[1]: codec.vocabulary.unknown_rate(self.words)}

    def fit_codec(self, codec: Any) -> None:  # noqa: B027 # most codecs have none
        """Fit the parts of the codec that depend on the texts, besides the vocabulary."""

    def bind(self, codec: Any, model: Seq2Seq, cache: Path, training: bool, quiet: bool) -> None:
        """Prepare the examples for a model.

        Args:
            cache: folder for features that are computed once per source.
            training: whether the examples are for training, not for validation or evaluation.
            quiet: whether to show nothing.
        """
        self.codec = codec

    @abstractmethod
    def batches(self, training_config: Any) -> Batches:
        """Return batches of `{"source": ..., "tokens": ...}` for training."""

    @abstractmethod
    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return an example for the batches."""

    def reading(self, index: int, reader: Reader, options: Any) -> Reading:
        """Return an example as input of the pipeline: by default what a live call reads, so that both answer alike."""
        return reader.read(self.rows[index][self.columns[0]], options)

    def sampled_texts(self, token_ids: Sequence[list[int]], indices: Sequence[int]) -> list[str]:
        """Convert token ids that were sampled for examples to texts."""
        ids = tf.ragged.constant(token_ids, tf.int32, ragged_rank=1).to_tensor()
        return [text.decode() for text in self.codec.texts(ids[:, tf.newaxis], {})[:, 0].numpy()]

    def __len__(self) -> int:
        return len(self.references)


@dataclass(frozen=True)
class OutputOptions(Limited):
    """Options of the post-processing. Tasks add their own fields."""


@dataclass(frozen=True)
class Parts:
    """Factories of the parts of an application.

    Attributes:
        reader: makes a reader from a configuration.
        codec: makes a codec from a configuration and a vocabulary.
        model: makes a model from a configuration and a vocabulary.
        examples: the class of the examples.
        load_pretrained: loads pretrained weights into a new model, if there are any.
        extra_loss: makes an additional training loss from a configuration. Most tasks train with cross-entropy alone.
    """

    reader: Callable[[Any], Reader]
    codec: Callable[[Any, Vocabulary], Codec]
    model: Callable[[Any, Vocabulary], Seq2Seq]
    examples: type[Examples]
    load_pretrained: Callable[[Seq2Seq], None] = lambda model: None
    extra_loss: Callable[[Any], Any] = lambda config: None
