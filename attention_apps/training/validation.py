"""Validation by generated text, and the choice of the weights to keep."""

import contextlib
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from attention_apps.checks import require
from attention_apps.training.checkpoint import (
    CheckpointFolder,
    DamagedCheckpointError,
    RunState,
    assign_arrays,
    to_arrays,
)
from attention_apps.training.config import TrainingConfig
from attention_apps.training.logs import RunReport
from attention_apps.training.optimizer import MovingAverage, average_arrays
from attention_apps.training.train_step import chief_value

Validate = Callable[[keras.Model], Mapping[str, Any]]

_CANDIDATE = "candidate-"
_LOWER_IS_BETTER = {"wer", "cer", "loss", "error", "perplexity"}


def lower_is_better(metric: str) -> bool:
    """Whether a metric of this name counts errors."""
    return not _LOWER_IS_BETTER.isdisjoint(metric.lower().replace("-", "_").split("_"))


class Validation:
    """Evaluates the weights from time to time and keeps the best. Without `validate`, the latest are the best.

    Args:
        validate: returns a dict of `metrics` (name to value) and `samples` (source, reference, generated), or `None`.
        average: a moving average to validate instead of the weights, or `None`.
        checkpoints: where `best` and the candidates for averaging are kept.
        writes: whether this process writes checkpoints. Only the chief does.
    """

    def __init__(
        self,
        model: keras.Model,
        config: TrainingConfig,
        validate: Validate | None,
        average: MovingAverage | None,
        checkpoints: CheckpointFolder,
        report: RunReport,
        writes: bool,
    ):
        self.model = model
        self.config = config
        self.validate = validate
        self.checkpoints = checkpoints
        self.report = report
        self.writes = writes
        self.strategy = tf.distribute.get_strategy()
        self._validated_weights: Callable[[], contextlib.AbstractContextManager[None]]
        self._validated_weights = contextlib.nullcontext if average is None else average.in_place

    def run(self, state: RunState) -> None:
        """Evaluate the current weights and record the result in `state`."""
        with self._validated_weights():
            score, value = self._measure(state)
            state.stale += 1
            if state.best_score is None or score > state.best_score:
                state.stale = 0
                self._keep_best(state, score, value)
            if self.config.average_checkpoints > 1:
                if self.writes:
                    arrays = to_arrays("model", self.model.variables)
                    self.checkpoints.save(_candidate(state.step), arrays, {"step": state.step})
                ranked = sorted([*state.candidates, [score, state.step]], reverse=True)
                state.candidates = ranked[: self.config.average_checkpoints]

    def conclude(self, state: RunState) -> None:
        """Evaluate the last weights, unless that was just done, and then the average of the candidates."""
        if state.validated_step != state.step:
            self.run(state)
        candidates = self._load_candidates(state)
        if len(candidates) > 1:
            last = to_arrays("model", self.model.variables)
            assign_arrays("model", self.model.variables, average_arrays(candidates))
            score, value = self._measure(state)
            if state.best_score is None or score >= state.best_score:
                self._keep_best(state, score, value)
            # If the run is extended later, it resumes from its own weights and not from an average.
            assign_arrays("model", self.model.variables, last)

    def remove_old_candidates(self, state: RunState) -> None:
        """Remove weights that are no longer candidates. Call this only after a checkpoint of `state` was written."""
        if self.writes:
            self.checkpoints.keep_only({_candidate(step) for _, step in state.candidates}, prefix=_CANDIDATE)

    def load_best(self) -> None:
        """Assign the best weights to the model. With several workers, all of them must call this."""
        chief_value(self.strategy, 0.0)  # returns once the chief gets here too, after all its writes
        assign_arrays("model", self.model.variables, self.checkpoints.load("best").arrays)

    def replace_best(self, state: RunState) -> None:
        """Evaluate the current weights and keep them as the best, because the best checkpoint was lost."""
        with self._validated_weights():
            self._keep_best(state, *self._measure(state))

    def _measure(self, state) -> tuple[float, float | None]:
        """The score of the model, where higher is better, and the value of the metric."""
        state.validated_step = state.step
        if self.validate is None:
            return float(state.step), None
        outcome = self.validate(self.model)
        metrics = {name: float(value) for name, value in outcome["metrics"].items()}
        self.report.validation(state, metrics, outcome.get("samples", ()))
        state.validations.append({"step": state.step, "epoch": state.epoch, **metrics})
        name = self.config.metric or next(iter(metrics))
        require(name in metrics, "metric", f"one of {', '.join(metrics)}", name)
        value = chief_value(self.strategy, metrics[name])
        if math.isnan(value):
            return -math.inf, value
        return -value if lower_is_better(name) else value, value

    def _keep_best(self, state, score, value):
        state.best, state.best_score, state.best_step = value, score, state.step
        if self.writes:
            arrays = to_arrays("model", self.model.variables)
            self.checkpoints.save("best", arrays, {"step": state.step, "value": value})

    def _load_candidates(self, state) -> list[dict[str, np.ndarray]]:
        chief_value(self.strategy, 0.0)  # returns once the chief gets here too, after all its writes
        loaded = []
        for _, step in state.candidates if len(state.candidates) > 1 else ():
            try:
                loaded.append(self.checkpoints.load(_candidate(step)).arrays)
            except (DamagedCheckpointError, FileNotFoundError) as error:
                warnings.warn(f"{error}; averaging without it", stacklevel=2)
        return loaded


def _candidate(step: float) -> str:
    return f"{_CANDIDATE}{int(step)}"
