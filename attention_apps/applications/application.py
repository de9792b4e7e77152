"""What the three applications share."""

import functools
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.progress import track

from attention_apps.applications.preset_folder import (
    PresetContent,
    find_preset,
    read_preset_folder,
    write_preset_folder,
)
from attention_apps.decoding import DecodingOptions, DecodingResult, beam_search
from attention_apps.metrics import MetricResult
from attention_apps.models import Seq2Seq
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.serving import Signature, export_saved_model
from attention_apps.training.config import read_config, to_dict
from attention_apps.training.data_check import DataCheck
from attention_apps.training.data_report import DataReport
from attention_apps.training.datasets import Batches
from attention_apps.training.fine_tuning import copy_grown_weights, weight_paths
from attention_apps.training.manifest import Manifest, Row
from attention_apps.training.rewards import make_reward
from attention_apps.training.stages import RewardedSampling, train
from attention_apps.training.trainer import History

VOCABULARY = "vocabulary.txt"
BATCH_SIZE = 32
_SAMPLES = 5


@dataclass(frozen=True)
class Evaluation:
    """Texts written for a data set, what the metrics say of them, and how many rows could not be used."""

    metrics: dict[str, MetricResult]
    texts: list[str]
    references: list[list[str]]
    sources: list[str]
    skipped: int = 0


class Application:
    """Preprocessing, a model and a search as one: raw input in, text out.

    A subclass says what its sources and texts are; reading presets, training, evaluation and decoding are here.

    Args:
        config: the application's configuration, a frozen dataclass with the sections `decoding` and `training`.
        vocabulary: the words it can write; without one, `fit` makes it from its data.
    """

    task: ClassVar[str]
    config_class: ClassVar[type]
    columns: ClassVar[tuple[str, str]]
    default_preset: ClassVar[str]

    def __init__(self, config: Any = None, vocabulary: Vocabulary | None = None):
        self.config = self.config_class() if config is None else config
        self.vocabulary = vocabulary
        self.model = None if vocabulary is None else self._make_model()

    # Presets

    @classmethod
    def from_preset(cls, name: str) -> Self:
        """The application of a preset that came with the package."""
        return cls.load(find_preset(name))

    @classmethod
    def load(cls, folder: str | os.PathLike) -> Self:
        """The application that `save` wrote into a folder, after every file is checked against its hash."""
        content = read_preset_folder(folder)
        if content.config.get("task") != cls.task:
            raise ValueError(f"{folder}: `task` must be {cls.task!r}. Received: task={content.config.get('task')!r}")
        if VOCABULARY not in content.texts:
            raise ValueError(f"{folder}: {VOCABULARY} is missing")
        try:
            application = cls._from_content(content)
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from None
        _assign_weights(application.model, content.weights, folder)
        return application

    @classmethod
    def _from_content(cls, content):
        """The application of a configuration and its texts; no model is made that needs more weights than there are."""
        config = content.config.get("config", {})
        if not isinstance(config, dict):  # a text would be the path of a file
            raise ValueError(f"`config` must be a JSON object. Received: {type(config).__name__}")
        config, vocabulary = read_config(cls.config_class, config), Vocabulary.from_text(content.texts[VOCABULARY])
        needed, held = config.fewest_weights(len(vocabulary)), sum(array.size for array in content.weights.values())
        if needed > held:
            raise ValueError(f"the model of its configuration has {needed:,} weights and more; its file has {held:,}")
        for path, array in content.weights.items():
            if array.dtype.kind != "f" or not np.isfinite(array).all():
                raise ValueError(f"the weights {path!r} are not all finite numbers")
        application = cls(config, vocabulary)
        application._take_files(content.texts)
        return application

    def save(self, folder: str | os.PathLike, card: str | None = None, half_precision: bool = False) -> None:
        """Writes the application into a folder that `load` reads, replacing an older one as a whole.

        Args:
            card: the text of its README.md.
            half_precision: whether weights are kept as float16, half as large.
        """
        self._check_trained()
        dtype = "float16" if half_precision else "float32"
        weights = {path: np.asarray(weight, dtype) for path, weight in _named_weights(self.model).items()}
        texts = {VOCABULARY: self.vocabulary.to_text(), **self._files()}
        content = PresetContent({"task": self.task, "config": to_dict(self.config)}, texts, weights)
        write_preset_folder(folder, content, card or f"# {Path(folder).name}\n\nA model for {self.task}.\n")

    def with_config(self, config: Any) -> Self:
        """A copy under another configuration, with the same words and weights.

        All may differ that changes no weight's shape: what learns, dropout, training, decoding. An attention may also
        become a hard one, or a hard one soft.
        """
        self._check_trained()
        other = type(self)(config, self.vocabulary)
        weights = {path: weight.numpy() for path, weight in _named_weights(self.model).items()}
        wanted = _named_weights(other.model)
        _assign_weights(other.model, _as_in(wanted, weights), "`config` changes the sizes of the model")
        other._take_files({VOCABULARY: self.vocabulary.to_text(), **self._files()})
        return other

    # Training

    def manifest(self, path: str | os.PathLike, columns: Mapping[str, str] | None = None) -> Manifest:
        """A data set's rows, with our columns, under the file's own names if `columns` gives them."""
        names = {name: name for name in self.columns}
        unknown = set(columns or {}) - set(names)
        if unknown:
            raise ValueError(f"`columns` must name some of {', '.join(names)}. Received: {', '.join(sorted(unknown))}")
        return Manifest(path, {**names, **(columns or {})}, self._path_columns())

    def check_data(
        self,
        data: str | os.PathLike,
        validation: str | os.PathLike | None = None,
        columns: Mapping[str, str] | None = None,
        strict: bool = False,
        quiet: bool = False,
    ) -> DataReport:
        """Looks through data sets for everything that would hurt training; see `DataReport`."""
        manifests = {"training": self.manifest(data, columns)}
        if validation is not None:
            manifests["validation"] = self.manifest(validation, columns)
        return self._data_check().run(manifests, strict=strict, quiet=quiet)

    def fit(
        self,
        data: str | os.PathLike,
        validation: str | os.PathLike | None = None,
        output: str | os.PathLike | None = None,
        columns: Mapping[str, str] | None = None,
        cache: str | os.PathLike | None = None,
        restart: bool = False,
        quiet: bool = False,
    ) -> list[History]:
        """Trains on a manifest, from where the application stands: fine-tuning where it was trained before.

        New words of the data are added to the vocabulary. The same call with the same `output` goes on after an
        interruption.

        Args:
            data, validation: manifests; the text written for the validation's sources decides which weights stay.
            output: folder for checkpoints and logs; a temporary one by default.
            columns: the file's names of our columns, `{"caption": "title"}`.
            cache: folder for what is computed once for each source; inside `output` by default.
            restart: whether to begin anew where `output` holds a run.
            quiet: whether nothing is shown.
        """
        report = self.check_data(data, validation, columns, self.config.training.strict, quiet)
        rows = list(report.good_rows(self.manifest(data, columns)))
        checked = None if validation is None else list(report.good_rows(self.manifest(validation, columns)))
        keras.utils.set_random_seed(self.config.training.seed)
        known = self.vocabulary
        self._learn_words(rows)
        if not quiet:
            self._show(report, {"training": rows, "validation": checked or []})
            if known is not None:
                print(f"New tokens in the vocabulary: {len(self.vocabulary) - len(known):,}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(output or temporary)
            caching = Path(cache or folder / "cache")
            examples = self._examples(rows, caching, quiet, training=True)
            validate = None
            if checked:
                held_out = self._examples(checked, caching, quiet, training=False)
                validate = functools.partial(self._validate, held_out)
            return train(
                self.model,
                self._batches(examples, self.config.training, training=True),
                self.config.training,
                folder,
                validate=validate,
                extra_loss=self._extra_loss(),
                rewarded=self._rewarded(examples),
                restart=restart,
                quiet=quiet,
            )

    def evaluate(
        self,
        data: str | os.PathLike,
        columns: Mapping[str, str] | None = None,
        cache: str | os.PathLike | None = None,
        options: DecodingOptions | None = None,
        quiet: bool = False,
    ) -> Evaluation:
        """Writes a text for each source of a manifest and measures them against the manifest's own."""
        self._check_trained()
        report = self._data_check().run({"data": self.manifest(data, columns)}, quiet=quiet)
        if (report.skipped or report.counts["unknown"]) and not quiet:
            print(report.to_text(), file=sys.stderr)
        rows = list(report.good_rows(self.manifest(data, columns)))
        with tempfile.TemporaryDirectory() as temporary:
            examples = self._examples(rows, Path(cache or temporary), quiet, training=False)
            return replace(self._measure(examples, options, quiet), skipped=report.skipped)

    def _rewarded(self, examples):
        """What self-critical training needs, or `None` where there is none."""
        config = self.config.training.self_critical
        if not config.epochs:
            return None
        references = [examples.references(row) for row in range(len(examples))]
        score = make_reward(config.metric or self._reward_metric(), references)

        def reward(token_ids: list[list[int]], rows: list[int]) -> np.ndarray:
            return score(self._sampled_texts(token_ids, examples, rows), [references[row] for row in rows])

        return RewardedSampling(reward, self._search_options(None))

    def _show(self, report, data):
        """Says what the data check has found; of a new vocabulary, also what it lacks."""
        for name, rows in data.items():
            if rows and not report.unknown_rate.get(name):
                report.unknown_rate[name] = self._unknown_rates(rows)
        print(report.to_text(), file=sys.stderr)

    def _learn_words(self, rows):
        """Makes the vocabulary and the model, or adds new words to both; in half precision, the model is made anew."""
        if self.vocabulary is None:
            self.vocabulary = self._make_vocabulary(rows)
            self.model = self._make_trainable_model()
            return
        grown = self.vocabulary.grow(self._new_words(rows))
        if len(grown) == len(self.vocabulary) and not self.config.training.mixed_precision:
            return
        old, self.vocabulary = self.model, grown
        self.model = self._make_trainable_model()
        copy_grown_weights(old, self.model)
        self._graphs = {}

    def _make_trainable_model(self):
        """The model, computing in half precision where training is told to."""
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy("mixed_float16" if self.config.training.mixed_precision else before)
        try:
            return self._make_model()
        finally:
            keras.config.set_dtype_policy(before)

    def _validate(self, examples, model):
        evaluation = self._measure(examples)
        metrics = {name: result.score for name, result in evaluation.metrics.items()}
        samples = zip(evaluation.sources, (texts[0] for texts in evaluation.references), evaluation.texts, strict=True)
        return {"metrics": metrics, "samples": list(islice(samples, _SAMPLES))}

    def _measure(self, examples, options=None, quiet=True):
        texts = self._write(examples, options, quiet)
        references = [examples.references(index) for index in range(len(examples))]
        sources = [examples.name(index) for index in range(len(examples))]
        return Evaluation(self._metrics(texts, references, sources), texts, references, sources)

    def _write(self, examples, options, quiet):
        """The best text for each example, batches being made of those alike in length."""
        batches = self._batches(examples, replace(self.config.training, max_batch_length=None), training=False)
        texts, console = [""] * len(examples), Console(stderr=True)
        shown = {"total": batches.num_batches(0), "transient": True, "disable": quiet or not console.is_terminal}
        for number, batch in enumerate(track(batches.batches(0), "Writing texts", console=console, **shown)):
            rows = batches.rows(0, number)
            result = self._search(batch["source"], options)
            written = self._example_texts(result, batch["source"], examples, rows, options)
            for row, best in zip(rows, written, strict=True):
                texts[row] = best[0]
        return texts

    # Serving

    def export(self, folder: str | os.PathLike, options: DecodingOptions | None = None) -> Path:
        """Writes a TensorFlow SavedModel that takes raw input and answers with text, the search inside of it.

        It needs core TensorFlow ops only: neither this package nor Keras. Its README.md names inputs and outputs.

        Args:
            folder: named as the model is to be called; the export is version `1` in it, or the one after the newest.
            options: of the search; those of the configuration by default.

        Returns:
            The folder of the version.
        """
        self._check_trained()
        options = self.config.decoding if options is None else options
        title = type(self).__doc__.splitlines()[0]
        search = ", ".join(f"{name} {value}" for name, value in asdict(options).items())
        return export_saved_model(folder, self._signatures(options), title, {"Search": search})

    # Decoding

    def _search(self, source: Mapping[str, tf.Tensor], options: DecodingOptions | None = None) -> DecodingResult:
        """The search over a batch, one graph for each set of options."""
        options = self._search_options(options)
        search = functools.partial(self._search_in_graph, options=options)
        return self._graph(("search", options), search, self._search_signature(source))(source)

    def _search_in_graph(self, source, options):
        decoder, memory = self.model.decoder, self.model.encode(source)
        return beam_search(decoder.step, decoder.init_state(memory), options, scorers=self._scorers(memory, options))

    def _attention(self, source, token_ids):
        """Weights `(batch, time, source)` of a teacher-forced pass over what was written."""
        signature = self._search_signature(source)
        signature = signature and [*signature, tf.TensorSpec((None, None), tf.int32)]
        return self._graph("attention", self._attend, signature)(source, token_ids)

    def _attend(self, source, token_ids):
        tokens = tf.concat([tf.ones_like(token_ids[:, :1]), token_ids[:, :-1]], axis=1)
        return self.model.decoder(tokens, self.model.encode(source), return_attention=True)[1]

    def _graph(self, name: Any, function: Any, signature: list[Any] | None = None) -> Any:
        """The function as a graph for a signature, which lasts as long as the model it was made with."""
        graphs = self.__dict__.setdefault("_graphs", {})
        key = (name, str(signature))
        if key not in graphs:
            graphs[key] = tf.function(function, signature, reduce_retracing=True, autograph=False)
        return graphs[key]

    def _results(self, items: Iterable[Any], options: DecodingOptions | None) -> Iterator[Any]:
        """A result for each item, in order; a batch at a time, so that items may be many."""
        self._check_trained()
        items = iter(items)
        while batch := list(islice(items, BATCH_SIZE)):
            yield from self._batch_results(batch, options)

    def _check_trained(self):
        if self.model is None:
            raise ValueError(
                f"This {type(self).__name__} has no model yet: `fit` it, or begin with `from_preset` or `load`."
            )

    # What an application says of itself

    def _make_model(self) -> Seq2Seq:
        raise NotImplementedError

    def _path_columns(self) -> tuple[str, ...]:
        """Those of our columns that name files."""
        return ()

    def _data_check(self) -> DataCheck:
        raise NotImplementedError

    def _make_vocabulary(self, rows: Sequence[Row]) -> Vocabulary:
        raise NotImplementedError

    def _new_words(self, rows: Sequence[Row]) -> Iterable[str]:
        raise NotImplementedError

    def _unknown_rates(self, rows: Sequence[Row]) -> dict[str, float]:
        """The share of the tokens that are not in the vocabulary, for each column of text."""
        raise NotImplementedError

    def _examples(self, rows: Sequence[Row], cache: Path, quiet: bool, training: bool) -> Any:
        """Random access to `{"source": ..., "tokens": ...}`, with `references(index)` and `name(index)`."""
        raise NotImplementedError

    def _batches(self, examples: Any, training_config: Any, training: bool) -> Batches:
        raise NotImplementedError

    def _extra_loss(self) -> Any:
        """A further loss for `TeacherForcing`, or `None`."""
        return None

    def _reward_metric(self) -> str:
        """What self-critical training rewards where its configuration names no metric."""
        raise NotImplementedError

    def _sampled_texts(self, token_ids: Sequence[list[int]], examples: Any, rows: Sequence[int]) -> list[str]:
        """The texts of token ids, each written for an example."""
        raise NotImplementedError

    def _signatures(self, options: DecodingOptions) -> dict[str, Signature]:
        """How an export is called."""
        raise ValueError(f"{type(self).__name__} has no export to a SavedModel yet.")

    def _files(self) -> dict[str, str]:
        """Further text files that are saved with the application, by name."""
        return {}

    def _take_files(self, texts: Mapping[str, str]) -> None:
        """Takes back what `_files` gave; the vocabulary is among the texts too."""

    def _search_options(self, options: DecodingOptions | None) -> DecodingOptions:
        """The options as the search takes them."""
        return self.config.decoding if options is None else options

    def _search_signature(self, source: Mapping[str, tf.Tensor]) -> list[Any] | None:
        """The signature of a batch's source in a list, so that one graph does for all shapes, or `None`."""
        return None

    def _scorers(self, memory: Mapping[str, Any], options: DecodingOptions) -> Sequence[Any]:
        """Further scorers of the search."""
        return ()

    def _texts(self, result: DecodingResult, source: Mapping[str, tf.Tensor]) -> list[list[str]]:
        """The texts of each item's hypotheses, best first."""
        raise NotImplementedError

    def _example_texts(
        self,
        result: DecodingResult,
        source: Mapping[str, tf.Tensor],
        examples: Any,
        rows: Sequence[int],
        options: DecodingOptions | None,
    ) -> list[list[str]]:
        """As `_texts`, for the examples numbered `rows`."""
        return self._texts(result, source)

    def _metrics(self, texts: list[str], references: list[list[str]], sources: list[str]) -> dict[str, MetricResult]:
        raise NotImplementedError

    def _batch_results(self, batch: list[Any], options: DecodingOptions | None) -> list[Any]:
        raise NotImplementedError


def share_of_unknown(texts: Iterable[Iterable[str]], vocabulary: Vocabulary) -> float:
    """How many of the tokens of all texts are not in a vocabulary, from 0 to 1."""
    known = [token in vocabulary for tokens in texts for token in tokens]
    return known.count(False) / max(len(known), 1)


def _named_weights(model: keras.Model) -> dict[str, keras.Variable]:
    """The weights by path, one that is used in two places under the first of them."""
    named: dict[int, tuple[str, keras.Variable]] = {}
    for path, weight in weight_paths(model):
        named.setdefault(id(weight), (path, weight))
    return dict(named.values())


def _assign_weights(model: keras.Model, arrays: Mapping[str, np.ndarray], folder: Any) -> None:
    """Fills the model with arrays by path, refusing any that is missing, left over or of another shape."""
    weights = _named_weights(model)
    for problem, names in (("lacks", weights.keys() - arrays.keys()), ("has unknown", arrays.keys() - weights.keys())):
        if names:
            raise ValueError(f"{folder}: the file of weights {problem} {sorted(names)[0]!r} and {len(names) - 1} more")
    for path, weight in weights.items():
        if tuple(arrays[path].shape) != tuple(weight.shape):
            found, wanted = tuple(arrays[path].shape), tuple(weight.shape)
            raise ValueError(f"{folder}: {path!r} must be of shape {wanted}. Received: shape={found}")
    for path, weight in weights.items():
        weight.assign(arrays[path].astype("float32"))


def _as_in(wanted: Mapping[str, keras.Variable], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays under the paths that another model has for them, hard attention being a layer around the attention.

    The baseline, which is not learned but measured in training, is that of the model where there is none.
    """
    plain = {_without_hard(path): array for path, array in arrays.items()}
    renamed = {path: plain.pop(_without_hard(path)) for path in wanted if _without_hard(path) in plain}
    baselines = {path: weight.numpy() for path, weight in wanted.items() if _is_baseline(path) and path not in renamed}
    return renamed | baselines | {path: array for path, array in plain.items() if not _is_baseline(path)}


def _without_hard(path: str) -> str:
    return path.replace("/hard_attention/attention/", "/attention/")


def _is_baseline(path: str) -> bool:
    return path.endswith("/hard_attention/baseline")
