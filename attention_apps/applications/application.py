"""The base class of all applications: presets, predictions, training, evaluation and export."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.progress import track

from attention_apps.applications.parts import OutputOptions, Parts
from attention_apps.applications.pipeline import Pipeline, answer_items
from attention_apps.applications.preset import HUB_PREFIX, Preset, find_preset, read_preset, upload_preset, write_preset
from attention_apps.data import DataReport, Manifest, group_rows, hold_out
from attention_apps.decoding import DecodingOptions
from attention_apps.metrics import MetricResult
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.serving import DEFAULT_SIGNATURE, TEXT_SIGNATURE, Signature, export_saved_model, text_only
from attention_apps.serving.batcher import require_process
from attention_apps.training.config import read_config, to_dict
from attention_apps.training.fine_tuning import (
    assign_weights,
    copy_grown_weights,
    fine_tuning_defaults,
    match_hard_attention,
    named_weights,
    num_held_out,
    scale_to_data,
)
from attention_apps.training.objectives import make_reward
from attention_apps.training.stages import RewardedSampling, TrainingNotes, train
from attention_apps.training.trainer import History

VOCABULARY = "vocabulary.txt"
_NUM_SAMPLES = 5


@dataclass(frozen=True)
class Evaluation:
    """The texts predicted for a data set, their metrics and confidences, and the number of unusable rows."""

    metrics: dict[str, MetricResult]
    texts: list[str]
    references: list[list[str]]
    sources: list[str]
    confidences: list[float]
    skipped: int = 0


class Application:
    """Maps raw input to text with a reader, a model, a search and a codec.

    The application of a task is a subclass that names its parts and adds one method, such as `caption`. It overrides
    nothing.

    Args:
        config: a frozen dataclass with the sections `decoding`, `output` and `training`.
        vocabulary: the tokens of the output. Without one, `fit` builds it from its data.
        parts: the parts of the application.
    """

    task: ClassVar[str]
    config_class: ClassVar[type]
    default_preset: ClassVar[str]

    def __init__(self, config: Any, vocabulary: Vocabulary | None, parts: Parts):
        self.config = self.config_class() if config is None else config
        self.parts = parts
        self._process = os.getpid()
        self.reader = parts.reader(self.config)
        self._pipelines: dict[DecodingOptions, Pipeline] = {}
        self.vocabulary: Vocabulary | None = None
        self.codec: Any = None
        self.model: Any = None
        # The preset that the weights come from, and what `fit` has to say about them in the card.
        self.start: str | None = None
        self._training_notes = ""
        if vocabulary is not None:
            self._set_vocabulary(vocabulary, parts.model(self.config, vocabulary))

    # Presets

    @classmethod
    def from_preset(cls, name_or_folder: str | os.PathLike | None = None) -> Self:
        """Load a preset of the package by name, one that `save` wrote to a folder, or one of the Hugging Face Hub.

        `fit` then chooses the settings of its training by the size of the data; see `fine_tuning_defaults`.

        Args:
            name_or_folder: a name, a folder, or `hf://user/model`, optionally with `@revision`. The task's default
                preset if not given.
        """
        folder = find_preset(cls.default_preset if name_or_folder is None else name_or_folder)
        preset = read_preset(folder)
        if preset.task != cls.task:
            raise ValueError(f"{folder}: `task` must be {cls.task!r}. Received: task={preset.task!r}")
        if VOCABULARY not in preset.texts:
            raise ValueError(f"{folder}: {VOCABULARY} is missing")
        try:
            config = read_config(cls.config_class, preset.config)
            config = replace(config, training=fine_tuning_defaults(config.training))
            vocabulary = Vocabulary.from_text(preset.texts[VOCABULARY])
            preset.check_size(config.min_parameters(len(vocabulary)))
            application = cls(config, vocabulary)  # type: ignore[call-arg] # subclasses bring their own parts
            application.codec.take_files(preset.texts)
            assign_weights(application.model, preset.weights)
            is_handle = isinstance(name_or_folder, str) and name_or_folder.startswith(HUB_PREFIX)
            application.start = str(name_or_folder) if is_handle else folder.resolve().name
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from None
        return application

    def save(self, folder: str | os.PathLike, card: str | None = None, bits: int = 32) -> None:
        """Write a preset to a folder, and replace an older preset as a whole.

        Args:
            card: the text of its README.md. By default it says how the model was trained.
            bits: bits per weight: 32 or 16 for floats, 8 for integers with one scale per output channel.
        """
        self._check_trained()
        if hasattr(self.codec, "save"):  # a model of another library has its own format
            self.codec.save(folder)
            return
        assert self.vocabulary is not None  # a model has a vocabulary
        texts = {VOCABULARY: self.vocabulary.to_text(), **self.codec.files()}
        weights = {path: weight.numpy() for path, weight in named_weights(self.model).items()}
        preset = Preset(self.task, to_dict(self.config), texts, weights)
        card = card or f"# {Path(folder).name}\n\nA model for {self.task}.\n{self._training_notes}"
        write_preset(folder, preset, card, bits)

    def push_to_hub(
        self,
        repository: str,
        private: bool | None = None,
        revision: str | None = None,
        card: str | None = None,
        bits: int = 32,
    ) -> str:
        """Save a preset on the Hugging Face Hub, so that `from_preset("hf://user/model")` loads it.

        Args:
            repository: `user/model`; created if there is none.
            private: whether only you can see a new repository; by default what your account says.
            revision: the branch, created if there is none; by default `main`.
            card, bits: see `save`.

        Returns:
            The address of the commit.
        """
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / repository.split("/")[-1]
            self.save(folder, card, bits)
            return upload_preset(folder, repository, private, revision)

    def with_config(self, config: Any) -> Self:
        """Return a copy with another configuration and the same vocabulary and weights.

        The new configuration must not change the shape of a weight. It may change which layers are trained, dropout,
        training, decoding, and soft attention to hard attention or back.
        """
        self._check_trained()
        other = object.__new__(type(self))
        Application.__init__(other, config, self.vocabulary, self.parts)
        weights = {path: weight.numpy() for path, weight in named_weights(self.model).items()}
        try:
            assign_weights(other.model, match_hard_attention(named_weights(other.model), weights))
        except ValueError as error:
            raise ValueError(f"`config` changes the sizes of the model: {error}") from None
        other.codec.take_files(self.codec.files())
        other.start, other._training_notes = self.start, self._training_notes
        return other

    # Answers

    def run(self, items: Iterable[Any], quiet: bool = True, **options: Any) -> Iterator[Any]:
        """Yield the result of each item, in order and in bounded memory.

        The result of a bad item has an `error` and no text.

        Args:
            quiet: whether to hide the progress bar of a long item.
            options: options of the search and the output, such as `beam_size=3`.
        """
        self._check_trained()
        return self._run(items, quiet, False, *self.split_options(options))

    def answer(self, items: Any, options: Mapping[str, Any], quiet: bool = True, is_one: bool | None = None) -> Any:
        """Return one result for one item, or a list of results for a list. Called by methods such as `caption`.

        Args:
            options: options of the search and the output.
            quiet: whether to hide the progress bar of a long item.
            is_one: whether `items` is a single item, whose error is raised. By default, anything but a list or tuple.
        """
        self._check_trained()
        if is_one is None:
            is_one = not isinstance(items, list | tuple)
        if not is_one:
            return list(self._run(items, quiet, False, *self.split_options(options)))
        (result,) = self._run([items], quiet, True, *self.split_options(options))
        return result

    def _run(self, items, quiet, raise_errors, search, output):
        without_bar = contextlib.nullcontext(lambda reading, source, is_last: None)
        with self.reader.progress(quiet) if hasattr(self.reader, "progress") else without_bar as on_source:
            yield from answer_items(
                self._pipeline(search),
                items,
                lambda item: self.reader.read(item, output),
                output,
                self.reader.signature,
                raise_errors,
                on_source,
            )

    def split_options(self, options: Mapping[str, Any]) -> tuple[DecodingOptions, OutputOptions]:
        """Return the configuration's options of the search and of the output, changed by keywords.

        A given option may raise one that was not given: `num_best=8` widens the beam to 8.
        """
        search, output = self.config.decoding, self.config.output
        known = {field.name: part for part in (search, output) for field in fields(part)}
        unknown = sorted(options.keys() - known.keys())
        if unknown:
            raise TypeError(f"`{unknown[0]}` is not an option. Options: {', '.join(sorted(known))}")
        given = {name: value for name, value in options.items() if known[name] is search}
        if "num_best" in given and "beam_size" not in given:
            given["beam_size"] = max(search.beam_size, given["num_best"])
        elif "beam_size" in given and "num_best" not in given:
            given["num_best"] = max(min(search.num_best, given["beam_size"]), 1)
        if "max_length" in given and "min_length" not in given:
            given["min_length"] = max(min(search.min_length, given["max_length"]), 0)
        others = {name: value for name, value in options.items() if known[name] is output}
        return replace(search, **given), replace(output, **others)

    def _pipeline(self, options: DecodingOptions) -> Pipeline:
        if options not in self._pipelines:
            self._pipelines[options] = Pipeline(self.model, self.reader, self.codec, options)
        return self._pipelines[options]

    # Training and evaluation

    def manifest(self, path: str | os.PathLike, columns: Mapping[str, str] | None = None) -> Manifest:
        """Return the manifest of a data set.

        Args:
            columns: maps our column names to those of the file, `{"caption": "title"}`.
        """
        examples = self.parts.examples
        names = {name: name for name in examples.columns}
        unknown = set(columns or {}) - set(names)
        if unknown:
            raise ValueError(f"`columns` must name some of {', '.join(names)}. Received: {', '.join(sorted(unknown))}")
        return Manifest(path, {**names, **(columns or {})}, examples.path_columns)

    def check_data(
        self,
        data: str | os.PathLike,
        validation: str | os.PathLike | None = None,
        columns: Mapping[str, str] | None = None,
        strict: bool = False,
        quiet: bool = False,
        cache: str | os.PathLike | None = None,
    ) -> DataReport:
        """Find problems in data sets that would hurt training; see `DataReport`.

        Args:
            cache: folder for the cached check results of each file.
        """
        return self._check({"training": data, "validation": validation}, columns, strict, quiet, cache)

    def _check(self, data, columns, strict=False, quiet=False, cache=None, keep_rows=False, any_length=False):
        manifests = {name: self.manifest(path, columns) for name, path in data.items() if path is not None}
        check = self.parts.examples.data_check(self.config, self.codec)
        if any_length:
            check = replace(check, max_source_length=None, max_target_length=None)
        return check.run(manifests, strict=strict, quiet=quiet, cache=cache, keep_rows=keep_rows)

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
        """Train on a manifest, from scratch or from the current weights.

        New words of the data are added to the vocabulary. The same call with the same `output` resumes after an
        interruption.

        Present weights are scored first, at step 0, and kept if nothing beats them. Settings of a preset that the
        configuration leaves open (`"auto"`) are chosen by the size of the data; see `scale_to_data`. If no
        `validation` is given then, some of the data are held out for it.

        Args:
            data, validation: manifests. The weights with the best validation score are kept.
            output: folder for checkpoints and logs. A temporary folder by default.
            columns: maps our column names to those of the file, `{"caption": "title"}`.
            cache: folder for features that are computed once per source. Inside `output` by default.
            restart: whether to start over if `output` holds a run.
            quiet: whether to show nothing.
        """
        training, is_trained = self.config.training, self.model is not None
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(output or temporary)
            cache = Path(cache or folder / "cache")
            paths = {"training": data, "validation": validation}
            report = self._check(paths, columns, training.strict, quiet, cache, keep_rows=True)
            keras.utils.set_random_seed(training.seed)
            examples, held_out = self._split(report, data, validation, columns)
            self._learn_words(examples, quiet)
            self._show(report, {"training": examples, "validation": held_out}, quiet)
            examples.bind(self.codec, self.model, cache, training=True, quiet=quiet)
            if held_out is not None:
                held_out.bind(self.codec, self.model, cache, training=False, quiet=quiet)
            batches = examples.batches(training)
            training = scale_to_data(training, batches)
            notes = TrainingNotes(self.start, Path(data).name, len(examples), 0 if held_out is None else len(held_out))
            if not quiet:
                print(notes.plan(training, batches), file=sys.stderr)
            histories = train(
                self.model,
                batches,
                training,
                folder,
                validate=None if held_out is None else lambda model: self._validate(held_out),
                validate_first=is_trained and held_out is not None,
                extra_loss=self.parts.extra_loss(self.config),
                rewarded=self._rewarded(examples),
                restart=restart,
                quiet=quiet,
                run_config=replace(self.config, training=training),
            )
        if not quiet:
            print(notes.outcome(histories), file=sys.stderr)
        self._training_notes = notes.card(training, histories)
        return histories

    def _split(self, report, data, validation, columns):
        """The examples to train on and those to validate with, which may be held out from the same data."""
        make, training = self.parts.examples, self.config.training
        rows = list(report.good_rows(self.manifest(data, columns)))
        if validation is not None:
            return make(rows, self.config), self._examples(report, validation, columns)
        count = num_held_out(len(group_rows(rows, make.columns[0]))) if training.validate_every == "auto" else 0
        if not count:
            return make(rows, self.config), None
        rows, held_out = hold_out(rows, make.columns[0], count, training.seed)
        return make(rows, self.config), make(held_out, self.config)

    def evaluate(
        self,
        data: str | os.PathLike,
        columns: Mapping[str, str] | None = None,
        cache: str | os.PathLike | None = None,
        quiet: bool = False,
        **options: Any,
    ) -> Evaluation:
        """Predict a text for each source of a manifest and score it against the references.

        Args:
            options: options of the search and the output, such as `beam_size=3`.
        """
        self._check_trained()
        any_length = self.parts.examples.reads_any_length
        report = self._check({"data": data}, columns, quiet=quiet, cache=cache, keep_rows=True, any_length=any_length)
        if (report.skipped or report.counts["unknown"]) and not quiet:
            print(report.to_text(), file=sys.stderr)
        examples = self._examples(report, data, columns)
        with tempfile.TemporaryDirectory() as temporary:
            examples.bind(self.codec, self.model, Path(cache or temporary), training=False, quiet=quiet)
            return replace(self._measure(examples, options, quiet), skipped=report.skipped)

    def _examples(self, report, data, columns):
        return self.parts.examples(list(report.good_rows(self.manifest(data, columns))), self.config)

    def _learn_words(self, examples, quiet):
        """Create the vocabulary and the model, or add new words to both. Mixed precision also needs a new model."""
        if self.vocabulary is None:
            vocabulary = examples.make_vocabulary()
            self._set_vocabulary(vocabulary, self._make_trainable_model(vocabulary))
            self.parts.load_pretrained(self.model)
        else:
            grown = self.vocabulary.grow(examples.new_words(self.codec))
            if not quiet:
                print(f"New tokens in the vocabulary: {len(grown) - len(self.vocabulary):,}", file=sys.stderr)
            if len(grown) > len(self.vocabulary) or self.config.training.mixed_precision:
                old, files = self.model, self.codec.files()
                has_grown = len(grown) > len(self.vocabulary)
                self._set_vocabulary(grown, self._make_trainable_model(grown))
                self.codec.take_files({} if has_grown else files)  # counts are only valid for their own vocabulary
                copy_grown_weights(old, self.model)
        examples.fit_codec(self.codec)

    def _make_trainable_model(self, vocabulary):
        """Return the model, in half precision if the training configuration asks for it."""
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy("mixed_float16" if self.config.training.mixed_precision else before)
        try:
            return self.parts.model(self.config, vocabulary)
        finally:
            keras.config.set_dtype_policy(before)

    def _set_vocabulary(self, vocabulary, model):
        self.vocabulary, self.model = vocabulary, model
        self.codec = self.parts.codec(self.config, vocabulary)
        self._pipelines = {}

    def _show(self, report, data, quiet):
        """Print the result of the data check, with the out-of-vocabulary rates of a new vocabulary."""
        if quiet:
            return
        for name, examples in data.items():
            if examples is not None and not report.unknown_rate.get(name):
                report.unknown_rate[name] = examples.unknown_rates(self.codec)
        print(report.to_text(), file=sys.stderr)

    def _rewarded(self, examples):
        """Return what self-critical training needs, or `None` if it is off."""
        config = self.config.training.self_critical
        if not config.epochs:
            return None
        references = [examples.references(index) for index in range(len(examples))]
        score = make_reward(config.metric or examples.reward_metric, references)

        def reward(token_ids: list[list[int]], indices: list[int]) -> np.ndarray:
            return score(examples.sampled_texts(token_ids, indices), [references[index] for index in indices])

        return RewardedSampling(reward, self.codec.search_options(self.config.decoding))

    def _validate(self, examples):
        evaluation = self._measure(examples)
        metrics = {name: result.score for name, result in evaluation.metrics.items()}
        samples = zip(evaluation.sources, (texts[0] for texts in evaluation.references), evaluation.texts, strict=True)
        return {"metrics": metrics, "samples": list(islice(samples, _NUM_SAMPLES))}

    def _measure(self, examples, options=None, quiet=True):
        search, output = self.split_options(options or {})
        console = Console(stderr=True)
        results = answer_items(
            self._pipeline(search),
            range(len(examples)),
            examples.reading,
            output,
            examples.source_signature,
            raise_errors=True,
        )
        hidden = quiet or not console.is_terminal
        shown = track(results, "Writing texts", len(examples), console=console, transient=True, disable=hidden)
        confidences: list[float] = []

        def watched():
            for result in shown:
                confidences.append(getattr(result, "confidence", float("nan")))
                yield result

        metrics, texts, sources = examples.measure(watched())
        references = [examples.references(index) for index in range(len(examples))]
        return Evaluation(metrics, texts, references, sources, confidences)

    # Serving

    def export(self, folder: str | os.PathLike, **options: Any) -> Path:
        """Write a TensorFlow SavedModel that maps raw input to text and includes the search.

        It uses core TensorFlow ops only and needs neither this package nor Keras. Its README.md lists inputs and
        outputs.

        Args:
            folder: its name is the name of the model. The export is version `1`, or the version after the newest.
            options: options of the search and the output, such as `beam_size=3`.

        Returns:
            The folder of the new version.
        """
        self._check_trained()
        search, output = self.split_options(options)
        title = (type(self).__doc__ or self.task).splitlines()[0]
        notes = {"Search": ", ".join(f"{name} {value}" for name, value in asdict(search).items())}
        return export_saved_model(folder, self._signatures(search, output), title, notes)

    def _signatures(self, search, output):
        pipeline = Pipeline(self.model, self.reader, self.codec, search)

        def make(raw_input):
            def answer(**raw: tf.Tensor) -> dict[str, tf.Tensor]:
                source, context = raw_input.in_graph(**raw)
                return self.codec.serve(pipeline(source), context, output)

            return Signature(
                answer,
                raw_input.specs,
                raw_input.example,
                raw_input.notes,
                self.codec.output_notes,
                self.codec.resources,
                self.codec.packages,
            )

        signatures = {name: make(raw_input) for name, raw_input in self.reader.raw_inputs().items()}
        return {**signatures, TEXT_SIGNATURE: text_only(signatures[DEFAULT_SIGNATURE])}

    def _check_trained(self):
        require_process(self._process, f"This {type(self).__name__}")
        if self.model is None:
            raise ValueError(f"This {type(self).__name__} has no model yet: call `fit`, or start with `from_preset`.")
