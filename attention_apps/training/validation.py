"""Validation by generated text, and the choice of the weights to keep."""

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from attention_apps.training.averaging import MovingAverage, average_arrays
from attention_apps.training.checkpoint import CheckpointFolder
from attention_apps.training.config import TrainingConfig
from attention_apps.training.distribution import chief_value
from attention_apps.training.report import RunReport
from attention_apps.training.run_state import RunState
from attention_apps.training.weight_arrays import assign_arrays, to_arrays

Validate = Callable[[keras.Model], Mapping[str, Any]]

_CANDIDATE = "candidate-"
_LOWER_IS_BETTER = {"wer", "cer", "loss", "error", "perplexity"}


def lower_is_better(metric: str) -> bool:
    """Whether a metric of this name counts mistakes."""
    return not _LOWER_IS_BETTER.isdisjoint(metric.lower().replace("-", "_").split("_"))


class Validation:
    """Measures the weights now and then and keeps the best; without a measure, the latest count as the best.

    Args:
        validate: gives a dict of `metrics` (name to figure) and `samples` (source, reference, generated), or `None`.
        average: a moving average that takes the weights' place, or `None`.
        checkpoints: where `best` and the candidates for averaging are kept.
        writes: whether this process writes there, or only follows one that does.
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
        self.average = average
        self.checkpoints = checkpoints
        self.report = report
        self.writes = writes
        self.strategy = tf.distribute.get_strategy()

    def run(self, state: RunState) -> None:
        """Measures the weights as they are now, and writes down in `state` what came out."""
        with contextlib.nullcontext() if self.average is None else self.average.in_place():
            score, figure = self._measure(state)
            state.stale += 1
            if state.best_score is None or score > state.best_score:
                state.stale = 0
                self._keep_best(state, score, figure)
            if self.config.average_checkpoints > 1:
                self._keep_candidate(state, score)

    def conclude(self, state: RunState) -> None:
        """Measures the last weights, if that was not done, and then the average of the candidates."""
        if state.validated_step != state.step:
            self.run(state)
        if len(state.candidates) > 1:
            last = self._arrays()
            kept = [self.checkpoints.load(_candidate(step)).arrays for _, step in state.candidates]
            assign_arrays("model", self.model.variables, average_arrays(kept))
            score, figure = self._measure(state)
            if score >= state.best_score:
                self._keep_best(state, score, figure)
            # A run that is given more time goes on from its own weights, not from an average.
            assign_arrays("model", self.model.variables, last)

    def forget_worse(self, state: RunState) -> None:
        """Removes what is no longer a candidate: to be called once a checkpoint says so, and not before."""
        kept = {_candidate(step) for _, step in state.candidates}
        for name in self.checkpoints.names() if self.writes else ():
            if name.startswith(_CANDIDATE) and name not in kept:
                self.checkpoints.remove(name)

    def load_best(self) -> None:
        """Gives the model the best weights."""
        assign_arrays("model", self.model.variables, self.checkpoints.load("best").arrays)

    def _measure(self, state):
        """The score of the model, where more is better, and the figure behind it."""
        state.validated_step = state.step
        if self.validate is None:
            return float(state.step), None
        outcome = self.validate(self.model)
        metrics = {name: float(figure) for name, figure in outcome["metrics"].items()}
        self.report.validation(state, metrics, outcome.get("samples", ()))
        state.validations.append({"step": state.step, "epoch": state.epoch, **metrics})
        name = self.config.metric or next(iter(metrics))
        if name not in metrics:
            raise ValueError(f"`metric` must be one of {', '.join(metrics)}. Received: metric={name!r}")
        figure = chief_value(self.strategy, metrics[name])
        if math.isnan(figure):
            return -math.inf, figure
        return -figure if lower_is_better(name) else figure, figure

    def _keep_best(self, state, score, figure):
        state.best, state.best_score, state.best_step = figure, score, state.step
        if self.writes:
            self.checkpoints.save("best", self._arrays(), {"step": state.step, "figure": figure})

    def _keep_candidate(self, state, score):
        if self.writes:
            self.checkpoints.save(_candidate(state.step), self._arrays(), {"step": state.step})
        ranked = sorted([*state.candidates, [score, state.step]], reverse=True)
        state.candidates = ranked[: self.config.average_checkpoints]

    def _arrays(self):
        return to_arrays("model", self.model.variables)


def _candidate(step: float) -> str:
    return f"{_CANDIDATE}{int(step)}"
