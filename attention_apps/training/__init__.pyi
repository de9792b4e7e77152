from .checkpoint import CheckpointFolder, assign_arrays
from .config import (
    ScheduledSamplingConfig,
    SelfCriticalConfig,
    TrainingConfig,
    read_config,
    to_dict,
    to_toml,
    write_config,
)
from .fine_tuning import copy_grown_weights, fine_tuning_defaults, scale_to_data
from .losses import CTCLoss
from .objectives import SelfCritical, TeacherForcing, make_reward
from .stages import RewardedSampling, train
from .train_step import find_strategy, is_chief
from .trainer import History, Trainer, TrainingInterrupted
from .validation import lower_is_better

__all__ = [
    "CTCLoss",
    "CheckpointFolder",
    "History",
    "RewardedSampling",
    "ScheduledSamplingConfig",
    "SelfCritical",
    "SelfCriticalConfig",
    "TeacherForcing",
    "Trainer",
    "TrainingConfig",
    "TrainingInterrupted",
    "assign_arrays",
    "copy_grown_weights",
    "find_strategy",
    "fine_tuning_defaults",
    "is_chief",
    "lower_is_better",
    "make_reward",
    "read_config",
    "scale_to_data",
    "to_dict",
    "to_toml",
    "train",
    "write_config",
]
