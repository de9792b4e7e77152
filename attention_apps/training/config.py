"""The configuration of a training run. Defaults are defined here and nowhere else."""

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from attention_apps import files
from attention_apps.checks import require, require_at_least, require_between, require_fraction
from attention_apps.training.toml_config import read_config, to_dict, to_toml

__all__ = [
    "TrainingConfig",
    "ScheduledSamplingConfig",
    "SelfCriticalConfig",
    "read_config",
    "to_dict",
    "to_toml",
    "write_config",
]


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
    weight_decay: float = 0.0
    # The global norm to which gradients are clipped.
    clip_norm: float | None = 5.0

    # The probability mass that label smoothing spreads over the vocabulary.
    label_smoothing: float = 0.1
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
        require_at_least(self, 0, "doubly_stochastic", "coverage", "guided")
        _require_positive(self, "max_batch_length", "learning_rate", "clip_norm", "checkpoint_minutes", "max_minutes")
        require_fraction(self, "label_smoothing", *([] if self.ema is None else self._numbers("ema")))
        require_between(self, 0, 1, "final_learning_rate")
        _require_choice(self, "schedule", "validate_unit")

    def _numbers(self, *names: str) -> list[str]:
        """Those of the settings that are not "auto"."""
        return [name for name in names if getattr(self, name) != "auto"]


def write_config(folder: str | PathLike, config: Any) -> None:
    """Write a configuration to `config.toml` in a run's folder, atomically."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files.replace_file(folder / "config.toml", to_toml(config).encode())


def _require_positive(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        require(value is None or value > 0, name, "more than 0", value)


def _require_choice(config: Any, *names: str) -> None:
    for name in names:
        choices = get_args(get_type_hints(type(config))[name])
        listed = "one of " + ", ".join(f'"{choice}"' for choice in choices)
        require(getattr(config, name) in choices, name, listed, getattr(config, name))
