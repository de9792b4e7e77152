"""The configuration of a training run. Each default stands here and nowhere else."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_type_hints

from attention_apps.training.toml_config import read_config, to_dict, to_toml

__all__ = [
    "TrainingConfig",
    "ScheduledSamplingConfig",
    "SelfCriticalConfig",
    "read_config",
    "to_dict",
    "to_toml",
]


@dataclass(frozen=True)
class ScheduledSamplingConfig:
    """Feeds the model its own words in place of the true ones, now and then (Bengio et al. 2015)."""

    # The probability reached at the end of the ramp; 0 is plain teacher forcing.
    probability: float = 0.0
    # The optimizer step at which the probability begins to rise, and the steps until it is reached.
    start_step: int = 0
    ramp_steps: int = 0

    def __post_init__(self) -> None:
        _check_fraction(self, "probability", one=True)
        _check_least(self, 0, "start_step", "ramp_steps")


@dataclass(frozen=True)
class SelfCriticalConfig:
    """The second stage: the metric itself is the reward (Rennie et al. 2017)."""

    # Epochs of this stage, after those of cross-entropy; 0 leaves it out.
    epochs: int = 0
    learning_rate: float = 5e-5
    # What is rewarded: "cider", "bleu_4", "rouge", "wer", ..., see `make_reward`; by default the application's own.
    metric: str | None = None
    # Sampled texts of each source, and whether they are the best of a beam search, in place of drawn at random.
    samples: int = 5
    from_beam: bool = False
    # What a sample must beat: the greedy text, or the mean of the source's other samples.
    baseline: Literal["greedy", "mean"] = "mean"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check_least(self, 0, "epochs")
        _check_positive(self, "learning_rate", "temperature")
        _check_choice(self, "baseline")
        _check_least(self, 2 if self.baseline == "mean" else 1, "samples")


@dataclass(frozen=True)
class TrainingConfig:
    """All that the training loop can be told; the application's own configuration has it as one section."""

    # How long: passes over the data, or fewer if the optimizer has made this many steps. None at all is for a model
    # that has learned from cross-entropy before, and goes on with `self_critical`.
    epochs: int = 20
    max_steps: int | None = None

    # Examples of a step over all workers, and the most that a batch may hold when padded, in the unit of the
    # application's lengths (frames, tokens). Where both are given, both bounds hold.
    batch_size: int = 32
    max_batch_length: float | None = None
    # Steps whose gradients are added up before the weights change.
    accumulate: int = 1
    # In the first epochs batches go from short to long, which helps attention to find its way.
    short_first_epochs: int = 0

    # AdamW's learning rate at its peak: reached after the warm-up, then along the schedule down to the
    # fraction `final_learning_rate` of it ("constant" and "inverse_sqrt" ignore the fraction).
    learning_rate: float = 1e-3
    warmup_steps: int = 0
    schedule: Literal["constant", "cosine", "inverse_sqrt", "linear"] = "cosine"
    final_learning_rate: float = 0.0
    weight_decay: float = 0.0
    # The global norm to which gradients are clipped.
    clip_norm: float | None = 5.0

    # The probability mass that cross-entropy spreads over all words.
    label_smoothing: float = 0.1
    scheduled_sampling: ScheduledSamplingConfig = field(default_factory=ScheduledSamplingConfig)
    # Weights of the losses on attention: every source position is looked at (Xu et al. 2015, section 4.2.1),
    # none twice (See et al. 2017, equation 12), and from left to right (Tachibana et al. 2018, section 4.1).
    doubly_stochastic: float = 0.0
    coverage: float = 0.0
    guided: float = 0.0

    # Layers that do not learn, as patterns of their paths: "encoder/*".
    freeze: tuple[str, ...] = ()
    # Compute in half precision, keeping the weights in float32.
    mixed_precision: bool = False
    # The decay (0.999, say) of a running average of the weights, which is what is validated and kept.
    ema: float | None = None
    # How many of the best checkpoints are averaged at the end; 1 is the best alone.
    average_checkpoints: int = 1

    # Validation by generated text: how often, by which metric ("none" is the application's own), and the
    # number of validations without a better figure after which training stops.
    validate_every: int = 1
    validate_unit: Literal["epochs", "steps"] = "epochs"
    metric: str | None = None
    patience: int | None = None

    # Minutes between checkpoints; there is one after each validation and at the end anyway.
    checkpoint_minutes: float = 10.0
    # Of the weights' first values, dropout, and the order of the data.
    seed: int = 0
    # Bit-equal results from equal seeds, at some cost in speed.
    deterministic: bool = False
    # Stop when the data check finds anything, where a bad row is otherwise skipped and counted.
    strict: bool = False

    self_critical: SelfCriticalConfig = field(default_factory=SelfCriticalConfig)

    # Training ends after this many minutes, those before an interruption included.
    max_minutes: float | None = None
    # Steps between the rows of the logs.
    log_every: int = 50

    def __post_init__(self) -> None:
        _check_least(self, 0 if self.self_critical.epochs else 1, "epochs")
        _check_least(self, 1, "max_steps", "batch_size", "accumulate", "average_checkpoints", "log_every")
        _check_least(self, 1, "validate_every", "patience")
        _check_least(self, 0, "warmup_steps", "short_first_epochs", "weight_decay", "seed")
        _check_least(self, 0, "doubly_stochastic", "coverage", "guided")
        _check_positive(self, "max_batch_length", "learning_rate", "clip_norm", "checkpoint_minutes", "max_minutes")
        _check_fraction(self, "label_smoothing", "ema")
        _check_fraction(self, "final_learning_rate", one=True)
        _check_choice(self, "schedule", "validate_unit")


def _check_least(config: Any, least: int, *names: str) -> None:
    _check(config, names, lambda value: value >= least, f"at least {least}")


def _check_positive(config: Any, *names: str) -> None:
    _check(config, names, lambda value: value > 0, "more than 0")


def _check_fraction(config: Any, *names: str, one: bool = False) -> None:
    if one:
        _check(config, names, lambda value: 0 <= value <= 1, "between 0 and 1")
    else:
        _check(config, names, lambda value: 0 <= value < 1, "at least 0 and less than 1")


def _check_choice(config: Any, *names: str) -> None:
    for name in names:
        choices = get_args(get_type_hints(type(config))[name])
        _check(config, (name,), choices.__contains__, "one of " + ", ".join(f'"{choice}"' for choice in choices))


def _check(config: Any, names: tuple[str, ...], is_right: Callable[[Any], bool], expected: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and not is_right(value):
            raise ValueError(f"`{name}` must be {expected}. Received: {name}={value!r}")
