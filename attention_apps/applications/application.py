"""The base class of all applications: a predictor that learns from data."""

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import keras
from rich.console import Console
from rich.progress import track

from attention_apps.applications.parts import Evaluation
from attention_apps.applications.pipeline import answer_items
from attention_apps.applications.predictor import Config, Predictor
from attention_apps.data import DataReport, Manifest, group_rows, hold_out
from attention_apps.training.fine_tuning import copy_grown_weights, num_held_out, scale_to_data
from attention_apps.training.objectives import make_reward
from attention_apps.training.stages import RewardedSampling, TrainingNotes, train
from attention_apps.training.trainer import History

_NUM_SAMPLES = 5


class Application(Predictor[Config]):
    """Maps raw input to text with a reader, a model, a search and a codec.

    The application of a task is a subclass that names its parts and adds one method, such as `caption`. It overrides
    nothing.

    Args:
        config: a frozen dataclass with the sections `decoding`, `output` and `training`.
        vocabulary: the tokens of the output. Without one, `fit` builds it from its data.
        parts: the parts of the application, by default those of the class.
    """

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
            others = list(report.good_rows(self.manifest(validation, columns)))
            return make(rows, self.config), make(others, self.config)
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
        rows = list(report.good_rows(self.manifest(data, columns)))
        examples = self.parts.examples(rows, self.config)
        with tempfile.TemporaryDirectory() as temporary:
            examples.bind(self.codec, self.model, Path(cache or temporary), training=False, quiet=quiet)
            return replace(self._measure(examples, options, quiet), skipped=report.skipped)

    def _learn_words(self, examples, quiet):
        """Create the vocabulary and the model, or add new words to both. Mixed precision also needs a new model."""
        is_new, is_half = self.vocabulary is None, self.config.training.mixed_precision
        if is_new:
            vocabulary = examples.make_vocabulary()
        else:
            vocabulary = self.vocabulary.grow(() if examples.has_fixed_vocabulary else examples.new_words(self.codec))
            if not quiet:
                print(f"New tokens in the vocabulary: {len(vocabulary) - len(self.vocabulary):,}", file=sys.stderr)
        has_grown = is_new or len(vocabulary) > len(self.vocabulary)
        if has_grown or is_half:
            policy, old, files = keras.config.dtype_policy(), self.model, {} if has_grown else self.codec.files()
            keras.config.set_dtype_policy("mixed_float16" if is_half else policy)
            try:
                model = self.parts.model(self.config, vocabulary)
            finally:
                keras.config.set_dtype_policy(policy)
            self._set_vocabulary(vocabulary, model)
            if is_new:
                self.parts.load_pretrained(model)
            else:
                self.codec.take_files(files)  # counts of n-grams are only valid for their own vocabulary
                copy_grown_weights(old, model)
        examples.fit_codec(self.codec)

    def _show(self, report, data, quiet):
        """Print the result of the data check, with the out-of-vocabulary rates of a new vocabulary."""
        if quiet:
            return
        for name, examples in data.items():
            if examples is not None and not report.unknown_rate.get(name):
                rates = {} if examples.has_fixed_vocabulary else examples.unknown_rates(self.codec)
                report.unknown_rate[name] = rates
        print(report.to_text(), file=sys.stderr)

    def _rewarded(self, examples):
        """Return what self-critical training needs, or `None` if it is off."""
        config, references = self.config.training.self_critical, examples.references
        if not config.epochs:
            return None
        score = make_reward(config.metric or examples.reward_metric, references)
        return RewardedSampling(
            lambda token_ids, indices: score(
                examples.sampled_texts(token_ids, indices), [references[index] for index in indices]
            ),
            self.codec.search_options(self.config.decoding),
        )

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
            lambda index: examples.reading(index, self.reader, output),
            output,
            examples.source_signature or self.reader.signature,
            raise_errors=True,
        )
        hidden = quiet or not console.is_terminal
        shown = track(results, "Writing texts", len(examples), console=console, transient=True, disable=hidden)
        return examples.measure(shown)
