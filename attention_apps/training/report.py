"""Tells of a run while it goes on: the live line, the logs, samples of generated text."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from attention_apps.training.config import TrainingConfig
from attention_apps.training.logs import RunLogs
from attention_apps.training.progress import ProgressLine
from attention_apps.training.run_state import RunState
from attention_apps.training.step_figures import StepFigures

# Between two looks at the figures of the steps.
SHOW_SECONDS = 1.0
# Samples of a validation that are shown; the log has them all.
SHOWN_SAMPLES = 3


class RunReport:
    """Shows and logs what a run does.

    Args:
        folder: for the logs, or `None` in a process that writes none.
        total_steps: that the run will make, as far as it is known.
    """

    def __init__(self, config: TrainingConfig, folder: Path | None, total_steps: int, quiet: bool):
        self.config = config
        self.total_steps = total_steps
        self.progress = ProgressLine(quiet or folder is None)
        self._logs = None if folder is None else RunLogs(folder)
        self._figures = StepFigures()
        self._shown = self._began = time.monotonic()
        self._first_step = 0

    def begin(self, state: RunState, new: bool) -> None:
        """Called before the first step of this process; the logs forget what came after the checkpoint."""
        self._began = time.monotonic()
        self._first_step = state.step
        if self._logs is not None:
            self._logs.go_on_from(-1 if new else state.step)
        if not new and not state.finished:
            self.progress.note(f"going on from step {state.step:,}")

    def step(self, state: RunState, figures: tf.Tensor, names: list[str], counts: list[str]) -> None:
        """Called after each step with its figures, which stay on the device until there is something to tell."""
        self._figures.add(figures)
        log_due = state.step % self.config.log_every == 0
        if log_due or time.monotonic() - self._shown >= SHOW_SECONDS:
            self._shown = time.monotonic()
            self._tell(state, names, counts, log_due)

    def validation(
        self, state: RunState, metrics: Mapping[str, float], samples: Sequence[tuple[str, str, str]]
    ) -> None:
        text = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        self.progress.note(f"step {state.step:,}: {text}")
        for source, reference, generated in samples[:SHOWN_SAMPLES]:
            self.progress.note(f"  {source}: {generated}\n    (reference: {reference})")
        if self._logs is not None:
            self._logs.validation(state.step, state.epoch, metrics, samples)

    def _tell(self, state, names, counts, log_due):
        figures = self._figures.fetch(names, counts)
        state.skipped_steps += self._figures.take_skipped()
        if figures:
            self.progress.update(
                self._describe(state, figures), state.step / self.total_steps, self._seconds_left(state)
            )
        if log_due:
            self._figures.clear()
            if figures and self._logs is not None:
                self._logs.training(state.step, state.epoch + 1, figures)

    def _describe(self, state, figures):
        return (
            f"epoch {state.epoch + 1}/{self.config.epochs}, step {state.step:,}/{self.total_steps:,}, "
            f"loss {figures['loss']:.3f}, {figures['tokens_per_second']:,.0f} tokens/s"
        )

    def _seconds_left(self, state):
        a_step = (time.monotonic() - self._began) / (state.step - self._first_step)
        left = a_step * (self.total_steps - state.step)
        limit = self.config.max_minutes
        return left if limit is None else min(left, 60 * limit - state.seconds)
