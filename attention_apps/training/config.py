"""The configuration of a training run, and configurations as TOML.

Configurations are frozen dataclasses. Defaults are defined in them and nowhere else. pydantic checks the types; the
messages name the key and list the choices.
"""

import dataclasses
import difflib
import itertools
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeVar

import pydantic
import pydantic_core
import tomli_w

from attention_apps import files
from attention_apps.checks import require, require_at_least, require_between, require_fraction

__all__ = [
    "TrainingConfig",
    "ScheduledSamplingConfig",
    "SelfCriticalConfig",
    "read_config",
    "to_dict",
    "to_toml",
    "write_config",
]

# tomllib needs up to 1 kB for each byte of a file of keys.
MAX_FILE_BYTES = 100_000
# tomllib needs quadratic time and memory for a key of many parts, "a.a.a.a = 1".
MAX_LINE_CHARACTERS = 1_000

Config = TypeVar("Config")
# Chosen when training begins, to fit the number of examples and steps: see `scale_to_data`.
Auto = Literal["auto"]


@dataclass(frozen=True)
class ScheduledSamplingConfig:
    """Sometimes feeds the model its own predictions instead of the true tokens (Bengio et al. 2015)."""

    # The probability at the end of the ramp; 0 is plain teacher forcing.
    probability: float = 0.0
    # The optimizer step at which the probability begins to rise, and how many steps the rise takes.
    start_step: int = 0
    ramp_steps: int = 0

    def __post_init__(self) -> None:
        require_between(self, 0, 1, "probability")
        require_at_least(self, 0, "start_step", "ramp_steps")


@dataclass(frozen=True)
class SelfCriticalConfig:
    """The second stage: the metric is the reward (Rennie et al. 2017)."""

    # Epochs of this stage, which follows cross-entropy; 0 disables it.
    epochs: int = 0
    learning_rate: float = 5e-5
    # The reward: "cider", "bleu_4", "rouge", "wer", ..., see `make_reward`. Each application has its own default.
    metric: str | None = None
    # The number of sampled texts per source, and whether they come from a beam search instead of random sampling.
    samples: int = 5
    from_beam: bool = False
    # The baseline of a sample: the greedy text, or the mean of the source's other samples.
    baseline: Literal["greedy", "mean"] = "mean"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        require_at_least(self, 0, "epochs")
        _require_positive(self, "learning_rate", "temperature")
        _require_choice(self, "baseline")
        require_at_least(self, 2 if self.baseline == "mean" else 1, "samples")


@dataclass(frozen=True)
class TrainingConfig:
    """The settings of the training loop, one section of each application's configuration.

    Four of them can be `"auto"`. A preset that is fine-tuned has `"auto"` for all four; see `scale_to_data`.
    """

    # The number of passes over the data, and an upper limit of optimizer steps. 0 epochs are for a model that was
    # already trained with cross-entropy and continues with `self_critical`.
    epochs: int | Auto = 20
    max_steps: int | None = None

    # The maximum number of examples in a batch over all workers, and the maximum total length of a padded batch, in
    # the application's unit (frames, tokens). If both are given, both limits hold.
    batch_size: int = 32
    max_batch_length: float | None = None
    # The number of batches whose gradients are accumulated for one step.
    accumulate: int = 1
    # The number of initial epochs with batches sorted from short to long, which helps attention to align.
    short_first_epochs: int = 0

    # The peak learning rate of AdamW, reached after the warm-up. The schedule then lowers it to the fraction
    # `final_learning_rate` of the peak ("constant" and "inverse_sqrt" ignore the fraction).
    learning_rate: float = 1e-3
    warmup_steps: int | Auto = 0
    schedule: Literal["constant", "cosine", "inverse_sqrt", "linear"] = "cosine"
    final_learning_rate: float = 0.0
    # The peak learning rate when the trained model, as a preset, is fine-tuned on other data.
    fine_tuning_learning_rate: float = 5e-4
    weight_decay: float = 0.0
    # The global norm to which gradients are clipped.
    clip_norm: float | None = 5.0

    # The probability mass that label smoothing spreads over the vocabulary.
    label_smoothing: float = 0.1
    # The weight of the loss that makes two passes with different dropout agree (Liang et al. 2021, R-Drop). Every
    # example of a batch is then computed twice.
    consistency: float = 0.0
    scheduled_sampling: ScheduledSamplingConfig = field(default_factory=ScheduledSamplingConfig)
    # Weights of the attention losses: attend to every source position (Xu et al. 2015, section 4.2.1), to none twice
    # (See et al. 2017, equation 12), from left to right (Tachibana et al. 2018, section 4.1).
    doubly_stochastic: float = 0.0
    coverage: float = 0.0
    guided: float = 0.0

    # Layers that are not trained, as patterns of their paths: "encoder/*".
    freeze: tuple[str, ...] = ()
    # Compute in half precision, keeping the weights in float32.
    mixed_precision: bool = False
    # The decay (such as 0.999) of a moving average of the weights, which is then validated and kept.
    ema: float | Auto | None = None
    # How many of the best checkpoints are averaged at the end; 1 keeps the best one.
    average_checkpoints: int = 1

    # Validation by generated text: how often, by which metric ("none" is the application's default), and after how
    # many validations without improvement training stops. "auto" counts steps, whatever the unit.
    validate_every: int | Auto = 1
    validate_unit: Literal["epochs", "steps"] = "epochs"
    metric: str | None = None
    patience: int | None = None

    # Minutes between checkpoints, in addition to those after each validation and at the end.
    checkpoint_minutes: float = 10.0
    # The seed of the initial weights, dropout and the order of the data.
    seed: int = 0
    # Equal seeds give bit-identical results, at some cost in speed.
    deterministic: bool = False
    # Stop if the data check finds any problem, instead of skipping bad rows.
    strict: bool = False

    self_critical: SelfCriticalConfig = field(default_factory=SelfCriticalConfig)

    # Training ends after this many minutes, including those before an interruption.
    max_minutes: float | None = None
    # Steps between the rows of the logs.
    log_every: int = 50

    def __post_init__(self) -> None:
        require_at_least(self, 0 if self.self_critical.epochs else 1, *self._numbers("epochs"))
        require_at_least(self, 1, "max_steps", "batch_size", "accumulate", "average_checkpoints", "log_every")
        require_at_least(self, 1, "patience", *self._numbers("validate_every"))
        require_at_least(self, 0, "short_first_epochs", "weight_decay", "seed", *self._numbers("warmup_steps"))
        require_at_least(self, 0, "consistency", "doubly_stochastic", "coverage", "guided")
        _require_positive(self, "max_batch_length", "learning_rate", "fine_tuning_learning_rate", "clip_norm")
        _require_positive(self, "checkpoint_minutes", "max_minutes")
        require_fraction(self, "label_smoothing", *([] if self.ema is None else self._numbers("ema")))
        require_between(self, 0, 1, "final_learning_rate")
        _require_choice(self, "schedule", "validate_unit")

    def _numbers(self, *names: str) -> list[str]:
        """Those of the settings that are not "auto"."""
        return [name for name in names if getattr(self, name) != "auto"]


def _require_positive(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        require(value is None or value > 0, name, "more than 0", value)


def _require_choice(config: Any, *names: str) -> None:
    for name in names:
        choices = typing.get_args(typing.get_type_hints(type(config))[name])
        listed = "one of " + ", ".join(f'"{choice}"' for choice in choices)
        require(getattr(config, name) in choices, name, listed, getattr(config, name))


def read_config(cls: type[Config], source: str | PathLike | Mapping, overrides: Sequence[str] = ()) -> Config:
    """Build the dataclass `cls`, including nested ones, from a TOML file or a dict.

    Types are strict: a bool is not an integer, but an integer is accepted for a float. TOML has no null, so the text
    `"none"` stands for it where a field allows `None`.

    Args:
        overrides: `key=value` pairs that take precedence, as in `["training.epochs=3", "name=mine"]`. The value is
            TOML; anything that is not valid TOML is taken as plain text.
    """
    data = pydantic_core.to_jsonable_python(source if isinstance(source, Mapping) else _read_toml(Path(source)))
    for override in overrides:
        _apply_override(data, override)
    data = _replace_none(cls, data)
    settings = pydantic.ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    model = pydantic.create_model("Configuration", __config__=settings, config=(cls, ...))
    try:
        # JSON and not Python objects: in its strict mode pydantic takes lists for tuples only from JSON.
        content = pydantic_core.to_json({"config": data}, inf_nan_mode="constants")
        return model.model_validate_json(content).config  # type: ignore[attr-defined]
    except pydantic.ValidationError as error:
        origin = [] if isinstance(source, Mapping) else [str(source)]
        origin = " with ".join([*origin, *overrides])
        message = _describe(cls, data, error.errors(include_url=False))
        raise ValueError(f"{origin}: {message}" if origin else message) from None


def to_dict(config: Any) -> dict[str, Any]:
    """Return the configuration as plain dicts, lists, numbers and texts, for JSON and for `read_config`."""
    return pydantic_core.to_jsonable_python(config)


def to_toml(config: Any) -> str:
    """Return the configuration as TOML text, which `read_config` turns into an equal configuration."""
    return tomli_w.dumps(_without_null(to_dict(config)))


def write_config(folder: str | PathLike, config: Any) -> None:
    """Write a configuration to `config.toml` in a run's folder, atomically."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files.replace_file(folder / "config.toml", to_toml(config).encode())


def _read_toml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"There is no configuration file {path}")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"{path}: a configuration file must have at most {MAX_FILE_BYTES:,} bytes.")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})") from None
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_LINE_CHARACTERS:
            raise ValueError(f"{path}, line {number}: a line must have at most {MAX_LINE_CHARACTERS:,} characters.")
    try:
        return pydantic_core.to_jsonable_python(tomllib.loads(text))
    except (ValueError, RecursionError) as error:  # also of numbers of thousands of digits, and of hundreds of levels
        raise ValueError(f"{path}: is not valid TOML: {error}") from None


def _apply_override(data: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    names = [name.strip() for name in key.split(".")]
    if not equals or not all(names):
        raise ValueError(f"An override must have the form key=value or section.key=value. Received: {override!r}")
    for depth, name in enumerate(names[:-1], start=1):
        data = data.setdefault(name, {})
        if not isinstance(data, dict):
            raise ValueError(f"`{'.'.join(names[:depth])}` is not a section. Received: {override!r}")
    value = text.strip()
    try:
        parsed = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        parsed = {}
    data[names[-1]] = parsed["value"] if parsed.keys() == {"value"} else value


def _replace_none(annotation: Any, value: Any) -> Any:
    """Replace `"none"` by `None` wherever the annotation allows `None`."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    choices = typing.get_args(annotation) if is_union else (annotation,)
    if value == "none" and types.NoneType in choices:
        return None
    for choice in choices:
        if isinstance(value, dict) and dataclasses.is_dataclass(choice):
            hints = typing.get_type_hints(choice)
            return {name: _replace_none(hints.get(name), entry) for name, entry in value.items()}
        if isinstance(value, list) and typing.get_origin(choice) is tuple:
            members = typing.get_args(choice)
            members = members[:1] * len(value) if members[-1:] == (...,) else members
            return [_replace_none(*pair) for pair in itertools.zip_longest(members, value)][: len(value)]
    return value


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_without_null(entry) for entry in value]
    return "none" if value is None else value


def _describe(cls: type, data: Any, errors: Sequence[Mapping[str, Any]]) -> str:
    """Describe the first error of pydantic, an unknown key before all others."""
    error = next((error for error in errors if error["type"] == "unexpected_keyword_argument"), errors[0])
    path, value = _locate(data, error["loc"][1:])
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
    key = _shorten(key)
    if error["type"] == "unexpected_keyword_argument":
        section = cls
        for name in path[:-1]:
            if isinstance(name, str):
                section = next(_dataclasses_in(typing.get_type_hints(section).get(name)), section)
        known = [field.name for field in dataclasses.fields(section)]
        close = difflib.get_close_matches(str(path[-1]), known, n=1)
        hint = f" Did you mean `{close[0]}`?" if close else ""
        return f"Unknown key `{key}`.{hint} Known keys: {', '.join(known)}"
    if error["type"] == "value_error":  # raised by the dataclass itself
        return f"[{key}] {error['ctx']['error']}" if key else str(error["ctx"]["error"])
    if error["type"] == "missing":
        missing = ".".join(map(str, error["loc"][1:]))
        return f"`{missing}` is missing."
    if not key:
        return f"A configuration must be a table of keys and values: {error['msg']}"
    same = [other["msg"] for other in errors if _locate(data, other["loc"][1:])[0] == path]
    expected = " or ".join(message.removeprefix("Input should be ") for message in same)
    if error["type"] == "literal_error":
        expected = "one of " + error["ctx"]["expected"].replace(" or ", ", ").replace("'", '"')
    return f"`{key}` must be {expected}. Received: {key}={_shorten(repr(value))}"


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


def _locate(data: Any, location: Sequence[str | int]) -> tuple[list[str | int], Any]:
    """Return the path of an error and the value there. The location also names the branch of a union: leave it out."""
    path: list[str | int] = []
    for part in location:
        inside = part in data if isinstance(data, dict) else isinstance(data, list) and isinstance(part, int)
        if not inside or (isinstance(data, list) and isinstance(part, int) and part >= len(data)):
            break
        path.append(part)
        data = data[part]
    return path, data


def _dataclasses_in(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _dataclasses_in(argument)
