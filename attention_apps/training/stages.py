"""A complete training: cross-entropy first, then optionally self-critical training."""

from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import keras

from attention_apps.data.batches import Batches
from attention_apps.decoding.options import DecodingOptions
from attention_apps.training.config import SelfCriticalConfig, TrainingConfig, write_config
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
