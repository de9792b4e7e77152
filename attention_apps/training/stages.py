"""A whole training: cross-entropy first, then, where asked for, the metric itself."""

from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import keras

from attention_apps.decoding.options import DecodingOptions
from attention_apps.training.config import SelfCriticalConfig, TrainingConfig
from attention_apps.training.datasets import Batches
from attention_apps.training.self_critical import Reward, SelfCritical
from attention_apps.training.teacher_forcing import ExtraLoss, TeacherForcing
from attention_apps.training.trainer import History, Trainer
from attention_apps.training.validation import Validate


@dataclass(frozen=True)
class RewardedSampling:
    """What the second stage needs of an application; see `SelfCritical`."""

    reward: Reward
    options: DecodingOptions


def train(
    model: keras.Model,
    batches: Batches,
    config: TrainingConfig,
    output_folder: str | PathLike,
    validate: Validate | None = None,
    extra_loss: ExtraLoss | None = None,
    rewarded: RewardedSampling | None = None,
    restart: bool = False,
    quiet: bool = False,
) -> list[History]:
    """Trains in one or two stages, each in a folder of its own; called again, it goes on where it stopped.

    Args:
        validate: see `Trainer`.
        extra_loss: see `TeacherForcing`.
        rewarded: for `config.self_critical`; needed where that has epochs.
        restart: whether to begin anew.

    Returns:
        The history of each stage. The model has the best weights.
    """
    if config.self_critical.epochs and rewarded is None:
        raise ValueError("`rewarded` must be given where `self_critical.epochs` is more than 0. Received: None")
    folder = Path(output_folder)
    histories = []
    if config.epochs:
        objective = TeacherForcing(model, config, extra_loss)
        # What the second stage is told may change after the first.
        first = replace(config, self_critical=SelfCriticalConfig())
        trainer = Trainer(model, first, folder / "cross_entropy", objective, validate, quiet=quiet)
        histories.append(trainer.fit(batches, restart))
    config = second_stage(config, sum(history.seconds for history in histories))
    if config is not None:
        objective = SelfCritical(model, config.self_critical, rewarded.reward, rewarded.options, config.seed)
        trainer = Trainer(model, config, folder / "self_critical", objective, validate, True, quiet)
        histories.append(trainer.fit(batches, restart))
    return histories


def second_stage(config: TrainingConfig, seconds_spent: float) -> TrainingConfig | None:
    """The configuration of self-critical training, or `None` where there is none or no time is left for it."""
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
