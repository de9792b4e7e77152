"""The parts that an application is assembled from, and what they hand to each other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from attention_apps.applications.outputs import Tensors, clear_rows
from attention_apps.data import Batches, DataCheck, Row
from attention_apps.decoding import DecodingResult
from attention_apps.metrics import MetricResult
from attention_apps.models import Seq2Seq
from attention_apps.preprocessing.vocabulary import Vocabulary

# The status of a raw input that can be answered.
OK = "ok"


@dataclass(frozen=True, eq=False)
class Source:
    """What the pipeline answers at once: a photo, a piece of a recording, a passage of a text.

    Attributes:
        tensors: arrays without a batch axis, or `None` where there is nothing to answer, as in silence.
        length: sources of similar length share a batch.
        place: where the source lies in its item, for `Codec.join`.
    """

    tensors: Mapping[str, np.ndarray] | None
    length: float = 1.0
    place: Any = None


@dataclass(frozen=True, eq=False)
class Reading:
    """The sources of one item, and whatever else of the item its result shows."""

    sources: Iterable[Source]
    item: Any
    shown: Any = None


# The sources of an item, each with its outputs; `None` where there was nothing to answer.
AnsweredParts = list[tuple[Source, dict[str, np.ndarray] | None]]


@dataclass(frozen=True, eq=False)
class RawInput:
    """One way to call an exported model.

    Attributes:
        in_graph: graph code from raw tensors to source tensors, and a context that has at least `status`, strings
            `(batch,)`: `ok`, or the problem of the row. It never raises on data.
        specs: shape and type of each raw tensor.
        example: a valid call.
        notes: what each raw tensor is.
    """

    in_graph: Callable[..., tuple[Tensors, Tensors]]
    specs: Mapping[str, tf.TensorSpec]
    example: Mapping[str, Sequence[Any]]
    notes: Mapping[str, str]


class Reader(Protocol):
    """What comes in.

    Attributes:
        signature: shape and type of a batch of source tensors; axes of size `None` are padded.
        max_batch_length: how long the sources of a batch may be in all, padded to the longest.
    """

    @property
    def signature(self) -> Mapping[str, tf.TensorSpec]: ...

    @property
    def max_batch_length(self) -> float: ...

    def read(self, item: Any, options: Any) -> Reading:
        """Reads one item: a path, bytes, an array, a string.

        Its sources may be a generator, so that a long recording need not fit into memory.

        Raises:
            ValueError, TypeError or OSError: the item cannot be read; the message says why.
        """
        ...

    def raw_inputs(self) -> dict[str, RawInput]:
        """The ways to call an exported model, by the name of the signature."""
        ...


class Codec:
    """Tokens and text. The methods that raise `NotImplementedError` are for each task to write.

    Attributes:
        output_notes: what each output of an exported model is.
        resources: lookup tables that the graph uses.
        packages: what must be imported before an export is loaded.

    Args:
        config: of the application.
        vocabulary: all tokens that can be written.
    """

    output_notes: Mapping[str, str] = {}
    resources: Sequence[Any] = ()
    packages: Sequence[str] = ()

    def __init__(self, config: Any, vocabulary: Vocabulary):
        self.config = config
        self.vocabulary = vocabulary

    def prepare(self, source: Tensors) -> Tensors:
        """Graph code from source tensors to what the encoder takes."""
        return source

    def search_options(self, options: Any) -> Any:
        """The options with what this task always demands, tokens that must never be written for example."""
        return options

    def scorers(self, memory: Tensors, options: Any) -> Sequence[Any]:
        """Further scorers of the search."""
        return ()

    def texts(self, token_ids: tf.Tensor, source: Tensors) -> tf.Tensor:
        """Graph code: the texts of hypotheses `(batch, num_best, target)`, strings `(batch, num_best)`."""
        raise NotImplementedError

    def outputs(self, source: Tensors, memory: Tensors, result: DecodingResult, forced: Tensors) -> Tensors:
        """Graph code: everything there is to say of a batch of sources; at least `text` and `score`.

        Args:
            source: the source tensors, with what `prepare` returned.
            memory: of the encoder.
            result: of the search.
            forced: of a teacher-forced pass over the best tokens: `token_ids` `(batch, target)`, `attention`, `logits`.
        """
        raise NotImplementedError

    def join(self, reading: Reading, parts: AnsweredParts, options: Any) -> Any:
        """The result of one item from the outputs of its sources. An item with nothing to answer has no parts."""
        raise NotImplementedError

    def failed(self, item: Any, error: str) -> Any:
        """The result of an item that cannot be answered."""
        raise NotImplementedError

    def serve(self, outputs: Tensors, context: Tensors, options: Any) -> Tensors:
        """Graph code: what an exported model answers; rows whose status is not `ok` have no text."""
        status = context["status"]
        return {**clear_rows(outputs, status != OK), "status": status}

    def files(self) -> dict[str, str]:
        """Further text files of a preset, by name."""
        return {}

    def take_files(self, texts: Mapping[str, str]) -> None:
        """Takes back what `files` gave."""


class Examples:
    """Rows of a manifest as training examples, with what is particular about the data of the task.

    A set of examples is made in two steps, so that texts are tokenized once: the constructor tokenizes, and `bind`
    turns tokens into ids once there is a vocabulary. The methods that raise `NotImplementedError` are for each task to
    write.

    Attributes:
        columns: our names of the source and of the target column.
        path_columns: those of them that name files.
        reward_metric: what self-critical training rewards by default.
        source_signature: shape and type of a batch of the sources that `reading` gives.
    """

    columns: tuple[str, str]
    path_columns: tuple[str, ...] = ()
    reward_metric: str
    source_signature: Mapping[str, tf.TensorSpec]
    codec: Any

    def __init__(self, rows: Sequence[Row], config: Any):
        self.rows = rows
        self.config = config

    @staticmethod
    def data_check(config: Any, codec: Any) -> DataCheck:
        """The check of a manifest of this task; without a codec there is no vocabulary yet."""
        raise NotImplementedError

    @staticmethod
    def metrics(texts: list[str], references: list[list[str]], sources: list[str]) -> dict[str, MetricResult]:
        """What the task measures. The first metric chooses the weights that training keeps."""
        raise NotImplementedError

    def measure(self, results: Iterable[Any]) -> tuple[dict[str, MetricResult], list[str], list[str]]:
        """Metrics, texts and sources of the results of all examples, which come one after the other."""
        texts, sources = map(list, zip(*((result.text, result.source) for result in results), strict=True))
        references = [self.references(index) for index in range(len(self))]
        return self.metrics(texts, references, sources), texts, sources

    def make_vocabulary(self) -> Vocabulary:
        """The vocabulary of a new application."""
        raise NotImplementedError

    def new_words(self, codec: Any) -> Iterable[str]:
        """Words of the data that fine-tuning adds to the vocabulary."""
        return self.make_vocabulary().words

    def unknown_rates(self, codec: Any) -> dict[str, float]:
        """The share of out-of-vocabulary tokens, for each column of text."""
        return {}

    def fit_codec(self, codec: Any) -> None:
        """Lets the codec learn from the texts what it needs besides the vocabulary."""

    def bind(self, codec: Any, model: Seq2Seq, cache: Path, training: bool, quiet: bool) -> None:
        """Makes the examples ready for a model.

        Args:
            cache: folder for what is computed once for each source.
            training: whether they are for training, or for validation and evaluation.
            quiet: whether nothing is shown.
        """
        self.codec = codec

    def batches(self, training_config: Any) -> Batches:
        """Batches of `{"source": ..., "tokens": ...}` for training."""
        raise NotImplementedError

    def reading(self, index: int) -> Reading:
        """An example as the pipeline answers it; its `item` names the example."""
        raise NotImplementedError

    def references(self, index: int) -> list[str]:
        """The texts that people wrote for this example."""
        return [self.rows[index][self.columns[1]]]

    def sampled_texts(self, token_ids: Sequence[list[int]], indices: Sequence[int]) -> list[str]:
        """The texts of token ids that were sampled for examples."""
        ids = tf.ragged.constant(token_ids, tf.int32, ragged_rank=1).to_tensor()
        return [text.decode() for text in self.codec.texts(ids[:, tf.newaxis], {})[:, 0].numpy()]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class OutputOptions:
    """What is made of the result of a search. Tasks add their own fields."""


def no_extra_loss(config: Any) -> None:
    """Most tasks train with cross-entropy alone."""


@dataclass(frozen=True)
class Parts:
    """How the parts of an application are made.

    Attributes:
        reader: from a configuration.
        codec: from a configuration and a vocabulary.
        model: from a configuration and a vocabulary.
        examples: the class of the examples.
        load_pretrained: fills a new model with pretrained weights, where there are any.
        extra_loss: a further loss of the training, from a configuration.
    """

    reader: Callable[[Any], Reader]
    codec: Callable[[Any, Vocabulary], Codec]
    model: Callable[[Any, Vocabulary], Seq2Seq]
    examples: type[Examples]
    load_pretrained: Callable[[Seq2Seq], None] = field(default=lambda model: None)
    extra_loss: Callable[[Any], Any] = no_extra_loss
