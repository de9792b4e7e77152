"""The training loop."""

import time
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from attention_apps.training.averaging import MovingAverage
from attention_apps.training.checkpoint import Checkpoint, CheckpointFolder
from attention_apps.training.config import TrainingConfig
from attention_apps.training.datasets import Batches
from attention_apps.training.distribution import chief_value, is_chief, local_shards
from attention_apps.training.fine_tuning import freeze
from attention_apps.training.optimizer import AdamW
from attention_apps.training.report import RunReport
from attention_apps.training.run_state import RunState, check_same_run, describe_run
from attention_apps.training.schedules import WarmUpSchedule
from attention_apps.training.teacher_forcing import TeacherForcing
from attention_apps.training.train_step import TrainStep
from attention_apps.training.validation import Validate, Validation
from attention_apps.training.weight_arrays import assign_arrays, to_arrays


@dataclass(frozen=True)
class History:
    """How a run went; each validation has its `step`, its `epoch` and the metrics."""

    steps: int
    seconds: float
    skipped_steps: int
    validations: list[dict[str, float]]
    best: float | None
    best_step: int
    stopped_by: str


class Trainer:
    """Trains a model, writes checkpoints, and goes on from them when called again with the same folder.

    Under `tf.distribute`, make the model and the trainer within the strategy's scope. Workers share the folder, to
    which the chief writes.

    Args:
        model: a `Seq2Seq`.
        output_folder: for `checkpoints/`, the logs and the samples; belongs to this run alone.
        objective: what is minimised, by default the losses of teacher forcing.
        validate: `validate(model)` gives a dict of `metrics` (name to figure) and `samples`, a list of (name of the
            source, reference, generated text). `config.metric`, or else the first metric, decides.
        validate_first: whether the weights to begin with are validated too, and may turn out to be the best.
        quiet: whether nothing is shown.
    """

    def __init__(
        self,
        model: keras.Model,
        config: TrainingConfig,
        output_folder: str | PathLike,
        objective: Any = None,
        validate: Validate | None = None,
        validate_first: bool = False,
        quiet: bool = False,
    ):
        self.model = model
        self.config = config
        self.folder = Path(output_folder)
        self.objective = TeacherForcing(model, config) if objective is None else objective
        self.validate = validate
        self.validate_first = validate_first
        self.quiet = quiet
        self.strategy = tf.distribute.get_strategy()
        self.is_chief = is_chief(self.strategy)
        self.state = RunState()
        self._checkpoints = CheckpointFolder(self.folder / "checkpoints")

    def fit(self, batches: Batches, restart: bool = False) -> History:
        """Trains to the end and leaves the model with the best weights.

        Args:
            restart: whether to begin anew where the folder holds a run already.
        """
        self._set_up(batches)
        self._begin_or_go_on(restart)
        if not self.state.finished:
            try:
                with self.report.progress:
                    self._train()
            except tf.errors.UnavailableError as error:
                raise ConnectionError(
                    f"Another worker was lost after step {self.state.step:,}. Start all workers again with the same "
                    f"call: the run goes on from the last checkpoint in {self.folder}."
                ) from error
        self.validation.load_best()
        state = self.state
        return History(
            steps=state.step,
            seconds=state.seconds,
            skipped_steps=state.skipped_steps,
            validations=state.validations,
            best=state.best,
            best_step=state.best_step,
            stopped_by=state.finished,
        )

    # Beginning

    def _set_up(self, batches):
        config = self.config
        if config.deterministic:
            keras.utils.set_random_seed(config.seed)
            tf.config.experimental.enable_op_determinism()
        self.batches = batches
        self.total_steps = self._count_steps()
        signature = batches.batches(0).element_spec
        with self.strategy.scope():
            if not self.model.built:
                self.model.build(keras.tree.map_structure(lambda spec: tuple(spec.shape), signature))
            freeze(self.model, config.freeze)
            self.optimizer = self._make_optimizer()
            self.average = None
            if config.ema is not None:
                self.average = MovingAverage(self.model.trainable_variables, config.ema)
            signature = self.objective.signature(signature)
            self.make_step = TrainStep(
                self.model, self.objective, self.optimizer, self.average, signature, config.accumulate
            )
        self.report = RunReport(config, self.folder if self.is_chief else None, self.total_steps, self.quiet)
        self.validation = Validation(
            self.model, config, self.validate, self.average, self._checkpoints, self.report, self.is_chief
        )

    def _count_steps(self):
        epochs = range(self.config.epochs)
        steps = sum(-(-self.batches.num_batches(epoch) // self.config.accumulate) for epoch in epochs)
        return steps if self.config.max_steps is None else min(steps, self.config.max_steps)

    def _make_optimizer(self):
        config = self.config
        schedule = WarmUpSchedule(
            config.learning_rate, config.warmup_steps, config.schedule, self.total_steps, config.final_learning_rate
        )
        return AdamW(
            self.model.trainable_variables,
            schedule,
            weight_decay=config.weight_decay,
            clip_norm=config.clip_norm,
            loss_scaling=self.model.compute_dtype == "float16",
        )

    def _begin_or_go_on(self, restart):
        self._description = describe_run(self.config, self.batches)
        if restart and self.is_chief:
            self._checkpoints.clear()
        checkpoint = None if restart else self._checkpoints.load_last()
        if checkpoint is not None:
            check_same_run(checkpoint.state["run"], self._description, self.folder)
            self._restore(checkpoint)
        self._clock_zero = time.monotonic() - self.state.seconds
        self.report.begin(self.state, new=checkpoint is None)
        if checkpoint is None:
            self._save()
        self._saved_at = time.monotonic()

    def _restore(self, checkpoint: Checkpoint):
        for name, variables in self._variables().items():
            assign_arrays(name, variables, checkpoint.arrays)
        self.state = RunState(**checkpoint.state["position"])
        if self.state.finished == "max_minutes" and not self._reason_to_stop():
            self.state.finished = ""  # there is more time now

    def _variables(self):
        average = [] if self.average is None else self.average.variables
        return {"model": self.model.variables, "optimizer": self.optimizer.variables, "average": average}

    # The loop

    def _train(self):
        if self.validate_first and self.state.validated_step < 0:
            self._validate()
        while not self._reason_to_stop():
            self._train_epoch()
        self.validation.conclude(self.state)
        self.state.finished = self._reason_to_stop()
        self._save()

    def _train_epoch(self):
        state, config = self.state, self.config
        for parts, positions in self._feed():
            figures = self.make_step(parts, positions)
            state.step += 1
            state.batch = positions[-1][1] + 1
            self.report.step(state, figures, self.make_step.names, self.make_step.counts)
            if config.validate_unit == "steps" and state.step % config.validate_every == 0:
                self._validate()
            self._watch_clock()
            if self._reason_to_stop():
                break
        if state.batch < self.batches.num_batches(state.epoch):
            return
        state.epoch += 1
        state.batch = 0
        if config.validate_unit == "epochs" and state.epoch % config.validate_every == 0:
            self._validate()

    def _feed(self):
        """The batches of each step of the rest of the epoch, in parts for this process's replicas, and their places."""
        epoch, start = self.state.epoch, self.state.batch
        shards, count = local_shards(self.strategy), self.strategy.num_replicas_in_sync
        datasets = [self.batches.batches(epoch, start, shard, count) for shard in shards]
        group, positions = [], []
        for number, parts in enumerate(zip(*datasets, strict=True), start):
            rows = [self.batches.rows(epoch, number, shard, count) for shard in shards]
            group.append(self.objective.prepare(parts, rows, (epoch, number)))
            positions.append((epoch, number))
            if len(group) == self.config.accumulate:
                yield group, positions
                group, positions = [], []
        if group:
            yield group, positions

    def _reason_to_stop(self):
        state, config = self.state, self.config
        if state.step >= self.total_steps:
            return "max_steps" if state.epoch < config.epochs else "epochs"
        if config.patience is not None and state.stale >= config.patience:
            return "patience"
        if config.max_minutes is not None and state.seconds >= 60 * config.max_minutes:
            return "max_minutes"
        return ""

    def _watch_clock(self):
        """Keeps the time, and saves when it is time to. Workers agree on the time, which takes a message."""
        if self.strategy.num_replicas_in_sync > 1 and self.state.step % self.config.log_every:
            return
        now = time.monotonic()
        self.state.seconds = chief_value(self.strategy, now - self._clock_zero)
        if chief_value(self.strategy, now - self._saved_at) >= 60 * self.config.checkpoint_minutes:
            self._save()

    def _validate(self):
        self.validation.run(self.state)
        self._save()
        self.validation.forget_worse(self.state)

    def _save(self):
        arrays = {}
        for name, variables in self._variables().items():
            arrays |= to_arrays(name, variables)
        if self.is_chief:
            self._checkpoints.save_last(arrays, {"run": self._description, "position": asdict(self.state)})
        self._saved_at = time.monotonic()
