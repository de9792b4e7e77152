"""Where a run is, and whether another call continues the same run."""

import dataclasses
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from keras import tree

from attention_apps.training.config import TrainingConfig, to_dict
from attention_apps.training.datasets import Batches

# What may change between the calls of one run: it has no part in the weights that come out, or only says when to stop.
FREE_FIELDS = ("max_minutes", "checkpoint_minutes", "log_every", "strict")


@dataclasses.dataclass
class RunState:
    """The position of a run and what it has found so far; all of it JSON."""

    step: int = 0
    epoch: int = 0
    # The number of the next batch within the epoch.
    batch: int = 0
    seconds: float = 0.0
    skipped_steps: int = 0
    # One entry for each validation: `step`, `epoch`, and the metrics.
    validations: list[dict[str, float]] = dataclasses.field(default_factory=list)
    # The step that was validated last, whether or not it was by a metric.
    validated_step: int = -1
    # The best figure of the metric that decides, the score behind it (more is better), and its step.
    best: float | None = None
    best_score: float | None = None
    best_step: int | None = None
    # Validations since the best one.
    stale: int = 0
    # Score and step of the weights that are kept for averaging.
    candidates: list[list[float]] = dataclasses.field(default_factory=list)
    # Why the run is over, or nothing.
    finished: str = ""


def describe_run(config: TrainingConfig, batches: Batches) -> dict[str, Any]:
    """What must stay the same for a run to be continued: the configuration, and a fingerprint of the data."""
    settings = {name: value for name, value in to_dict(config).items() if name not in FREE_FIELDS}
    return {"config": settings, "data": describe_data(batches)}


def describe_data(batches: Batches) -> dict[str, int]:
    """The numbers of examples and batches, and checksums of the lengths and of three of the examples."""
    count = len(batches.examples)
    description = {"examples": count, "batches of the first epoch": batches.num_batches(0)}
    if batches.lengths is not None:
        description["checksum of the lengths"] = zlib.crc32(np.ascontiguousarray(batches.lengths))
    for name, index in (("first", 0), ("middle", count // 2), ("last", count - 1)):
        description[f"checksum of the {name} example"] = _checksum(batches.examples[index])
    return description


def check_same_run(before: Mapping[str, Any], now: Mapping[str, Any], folder: Any) -> None:
    """Raises an error that names each difference, if there is any."""
    changes = [
        f"{'`' + name + '`' if part == 'config' else name} was {before[part].get(name)!r}, now {now[part].get(name)!r}"
        for part in ("config", "data")
        for name in sorted({*before[part], *now[part]})
        if before[part].get(name) != now[part].get(name)
    ]
    if changes:
        raise ValueError(
            f"{folder} holds a run that differs from this one: {'; '.join(changes)}. "
            "Restart it, choose another folder, or go back to what it was."
        )


def _checksum(example: Mapping[str, Any]) -> int:
    checksum = 0
    for array in map(np.asarray, tree.flatten(example)):
        content = repr(array.tolist()).encode() if array.dtype.kind in "OSU" else np.ascontiguousarray(array)
        checksum = zlib.crc32(content, checksum)
    return checksum
