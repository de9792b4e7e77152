"""A trained application: presets, predictions and export."""

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import tensorflow as tf

from attention_apps.applications.parts import OutputOptions, Parts, RawInput
from attention_apps.applications.pipeline import Pipeline, answer_items
from attention_apps.applications.preset import HUB_PREFIX, Preset, find_preset, read_preset, upload_preset, write_preset
from attention_apps.decoding import DecodingOptions
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.serving import DEFAULT_SIGNATURE, TEXT_SIGNATURE, Signature, export_saved_model, text_only
from attention_apps.serving.batcher import require_process
from attention_apps.training.config import read_config, to_dict
from attention_apps.training.fine_tuning import (
    assign_weights,
    fine_tuning_defaults,
    match_hard_attention,
    named_weights,
)

VOCABULARY = "vocabulary.txt"

Config = TypeVar("Config")


class Predictor(Generic[Config]):
    """What an application can do with a trained model; `Application` adds the training.

    Args:
        config: a frozen dataclass with the sections `decoding`, `output` and `training`.
        vocabulary: the tokens of the output. Without one, `fit` builds it from its data.
        parts: the parts of the application, by default those of the class.
    """

    task: ClassVar[str]
    config_class: ClassVar[type]
    default_preset: ClassVar[str]
    parts: Parts

    def __init__(self, config: Config | None = None, vocabulary: Vocabulary | None = None, parts: Parts | None = None):
        self.config: Any = self.config_class() if config is None else config
        if parts is not None:
            self.parts = parts
        self._process = os.getpid()
        self.reader = self.parts.reader(self.config)
        self._pipelines: dict[DecodingOptions, Pipeline] = {}
        self.vocabulary: Vocabulary | None = None
        self.codec: Any = None
        self.model: Any = None
        # The preset that the weights come from, and what `fit` has to say about them in the card.
        self.start: str | None = None
        self._training_notes = ""
        if vocabulary is not None:
            self._set_vocabulary(vocabulary, self.parts.model(self.config, vocabulary))

    def _set_vocabulary(self, vocabulary, model):
        self.vocabulary, self.model = vocabulary, model
        self.codec = self.parts.codec(self.config, vocabulary)
        self._pipelines = {}

    def _check_trained(self):
        require_process(self._process, f"This {type(self).__name__}")
        if self.model is None:
            raise ValueError(f"This {type(self).__name__} has no model yet: call `fit`, or start with `from_preset`.")

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
            application = cls(config, vocabulary)
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
            if card is not None or bits != 32:
                raise ValueError("A KerasHub model is saved as it is: `card` and `bits` cannot be set.")
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

    def with_config(self, config: Config) -> Self:
        """Return a copy with another configuration and the same vocabulary and weights.

        The new configuration must not change the shape of a weight. It may change which layers are trained, dropout,
        training, decoding, and soft attention to hard attention or back.
        """
        self._check_trained()
        other = object.__new__(type(self))
        Predictor.__init__(other, config, self.vocabulary, self.parts)
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
        pipeline = Pipeline(self.model, self.reader, self.codec, search)

        def make(raw_input: RawInput) -> Signature:
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
        signatures[TEXT_SIGNATURE] = text_only(signatures[DEFAULT_SIGNATURE])
        return export_saved_model(folder, signatures, title, notes)
