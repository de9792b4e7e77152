"""Training of a `Seq2Seq` on one's own data: manifests, the loop, losses, checkpoints.

Each is imported when it is first asked for; the data's part needs no TensorFlow.
"""

import importlib

_HOMES = {
    "TrainingConfig": "config",
    "ScheduledSamplingConfig": "config",
    "SelfCriticalConfig": "config",
    "read_config": "config",
    "Manifest": "manifest",
    "DataCheck": "data_check",
    "DataReport": "data_report",
    "Batches": "datasets",
    "FeatureCache": "feature_cache",
    "Trainer": "trainer",
    "History": "trainer",
    "train": "stages",
    "RewardedSampling": "stages",
    "TeacherForcing": "teacher_forcing",
    "SelfCritical": "self_critical",
    "make_reward": "rewards",
    "copy_grown_weights": "fine_tuning",
    "find_strategy": "distribution",
}

__all__ = list(_HOMES)


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(f"attention_apps.training.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'attention_apps.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
