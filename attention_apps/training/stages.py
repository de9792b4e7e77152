"""A complete training: cross-entropy, then optionally self-critical training, and what its card says about it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import keras

from attention_apps.data.batches import Batches
from attention_apps.decoding.options import DecodingOptions
from attention_apps.training.config import SelfCriticalConfig, TrainingConfig, to_toml, write_config
from attention_apps.training.fine_tuning import count_steps
from attention_apps.training.objectives import ExtraLoss, Reward, SelfCritical, TeacherForcing
from attention_apps.training.trainer import History, Trainer
from attention_apps.training.validation import Validate


@dataclass(frozen=True)
class RewardedSampling:
    """What self-critical training needs from an application; see `SelfCritical`."""

    reward: Reward
    options: DecodingOptions


def train(
    model: keras.Model,
    batches: Batches,
    config: TrainingConfig,
    output_folder: str | PathLike,
    validate: Validate | None = None,
    validate_first: bool = False,
    extra_loss: ExtraLoss | None = None,
    rewarded: RewardedSampling | None = None,
    restart: bool = False,
    quiet: bool = False,
    run_config: Any = None,
) -> list[History]:
    """Train in one or two stages, each in its own folder. The same call resumes an interrupted run.

    Args:
        validate, validate_first: see `Trainer`. Self-critical training always validates first.
        extra_loss: see `TeacherForcing`.
        rewarded: for `config.self_critical`; required if that has epochs.
        restart: whether to start from the beginning.
        run_config: the application's configuration, a dataclass. It is written to `config.toml` in the output folder,
            but only once the run has been accepted: a refused call leaves the old file.

    Returns:
        The history of each stage. The model has the best weights.
    """
    if config.self_critical.epochs and rewarded is None:
        raise ValueError("`rewarded` must be given where `self_critical.epochs` is more than 0. Received: None")
    folder = Path(output_folder)
    shared: dict[str, Any] = {
        "validate": validate,
        "quiet": quiet,
        "on_accepted": None if run_config is None else partial(write_config, folder, run_config),
    }
    histories = []
    if config.epochs:
        objective = TeacherForcing(model, config, extra_loss)
        # The settings of the second stage may change after the first.
        first = replace(config, self_critical=SelfCriticalConfig())
        trainer = Trainer(
            model, batches, first, folder / "cross_entropy", objective, validate_first=validate_first, **shared
        )
        histories.append(trainer.fit(restart))
    second = second_stage(config, sum(history.seconds for history in histories))
    if second is not None and rewarded is not None:
        sampling = SelfCritical(model, second.self_critical, rewarded.reward, rewarded.options, second.seed)
        trainer = Trainer(model, batches, second, folder / "self_critical", sampling, validate_first=True, **shared)
        histories.append(trainer.fit(restart))
    return histories


def second_stage(config: TrainingConfig, seconds_spent: float) -> TrainingConfig | None:
    """Return the configuration of self-critical training, or `None` if it is disabled or no time is left."""
    minutes = None if config.max_minutes is None else config.max_minutes - seconds_spent / 60
    if not config.self_critical.epochs or (minutes is not None and minutes <= 0):
        return None
    return replace(
        config,
        epochs=config.self_critical.epochs,
        learning_rate=config.self_critical.learning_rate,
        max_steps=None,
        max_minutes=minutes,
        warmup_steps=0,
        schedule="constant",
    )


@dataclass(frozen=True)
class TrainingNotes:
    """The data of a training, and the texts about it: the plan before the first step, and its part of the card.

    Attributes:
        start: name of the preset that is fine-tuned, or `None` for a new model.
        data: name of the manifest.
        num_examples: how many examples of it are trained on.
        num_validation: how many examples the validation has.
    """

    start: str | None
    data: str
    num_examples: int
    num_validation: int

    def plan(self, config: TrainingConfig, batches: Batches) -> str:
        """Return the settings that were chosen by the size of the data, in one line."""
        steps = count_steps(batches, config)
        average = "no averaging" if config.ema is None else f"averaging with decay {config.ema:.4g}"
        return (
            f"{self._examples()}: {config.epochs} epochs, {steps:,} steps, warm-up of {config.warmup_steps:,}, "
            f"{average}, a validation every {config.validate_every} {config.validate_unit}"
        )

    def outcome(self, histories: Sequence[History]) -> str:
        """Return the outcome in one line."""
        last = histories[-1]
        text = f"{last.steps:,} steps, ended by {last.stopped_by}"
        if last.metric is None or last.best is None:
            return text
        first = histories[0].validations[0]
        if all(history.best_step == 0 for history in histories):
            return f"{text}; nothing beat the starting weights ({last.metric} {last.best:.4f}), so they were kept"
        before = f", {first[last.metric]:.4f} before" if first["step"] == 0 else ""
        return f"{text}; {last.metric} {last.best:.4f} at step {last.best_step:,}{before}"

    def card(self, config: TrainingConfig, histories: Sequence[History]) -> str:
        """Return the section of the card: data, steps, scores before and after, settings."""
        start = "from scratch" if self.start is None else f"from `{self.start}`"
        minutes = sum(history.seconds for history in histories) / 60
        lines = [
            "",
            "## Training",
            "",
            f"- {self._examples()} of `{self.data}`, {start}",
            f"- {minutes:,.1f} minutes; {self.outcome(histories)}",
            "",
            *_score_table(histories),
        ]
        return "\n".join([*lines, "Settings:", "", "```toml", to_toml(config).strip(), "```", ""])

    def _examples(self) -> str:
        validation = f"{self.num_validation:,} for validation" if self.num_validation else "no validation"
        return f"{self.num_examples:,} training examples, {validation}"


def _score_table(histories: Sequence[History]) -> list[str]:
    """Return a table of the scores before the first step, if there are any, and of the weights that were kept."""
    validations = [entry for history in histories for entry in history.validations]
    kept = next((entry for entry in reversed(validations) if entry["step"] == histories[-1].best_step), None)
    if kept is None:
        return []
    names = [name for name in kept if name not in ("step", "epoch")]
    rows = [("kept", kept)]
    if validations[0]["step"] == 0:
        rows.insert(0, ("before", validations[0]))
    lines = [f"| validation | step | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    for title, entry in rows:
        scores = " | ".join(f"{entry[name]:.4f}" for name in names)
        lines.append(f"| {title} | {entry['step']:.0f} | {scores} |")
    return [*lines, ""]
