"""The training loop."""

import contextlib
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from attention_apps import files
from attention_apps.data.batches import Batches
from attention_apps.training.checkpoint import (
    CheckpointFolder,
    DamagedCheckpointError,
    RunState,
    assign_arrays,
    check_same_run,
    describe_run,
    to_arrays,
)
from attention_apps.training.config import TrainingConfig
from attention_apps.training.fine_tuning import count_steps, freeze, scale_to_data
from attention_apps.training.logs import RunReport
from attention_apps.training.objectives import TeacherForcing
from attention_apps.training.optimizer import AdamW, MovingAverage, WarmUpSchedule
from attention_apps.training.train_step import TrainStep, chief_value, is_chief, local_shards
from attention_apps.training.validation import Validate, Validation


@dataclass(frozen=True)
class History:
    """The results of a run. Each validation has its `step`, its `epoch` and the metrics; `metric` decides."""

    steps: int
    seconds: float
    skipped_steps: int
    validations: list[dict[str, float]]
    best: float | None
    best_step: int | None
    stopped_by: str
    metric: str | None = None


class TrainingInterrupted(KeyboardInterrupt):
    """SIGINT (Ctrl-C) or SIGTERM stopped a run. Its checkpoint is written, and the same call resumes it."""

    def __init__(self, message: str, signal_number: int):
        super().__init__(message)
        self.signal_number = signal_number


class Trainer:
    """Trains a model, writes checkpoints, and resumes from them when run again with the same folder.

    Under `tf.distribute`, create the model and the trainer in the strategy's scope. All workers need access to the
    folder; only the chief writes to it.

    Args:
        model: a `Seq2Seq`.
        batches: the training data.
        output_folder: for `checkpoints/`, the logs and the samples. Belongs to this run only and is locked during it.
        objective: what is minimized, by default the losses of teacher forcing.
        validate: `validate(model)` returns a dict of `metrics` (name to value) and `samples`, a list of (name of the
            source, reference, generated text). `config.metric`, or by default the first metric, decides.
        validate_first: whether the initial weights are validated too, so that they can be the best.
        quiet: whether to show nothing.
        on_accepted: called by the chief once the folder's run, if any, has turned out to be this one.
    """

    def __init__(
        self,
        model: keras.Model,
        batches: Batches,
        config: TrainingConfig,
        output_folder: str | PathLike,
        objective: Any = None,
        validate: Validate | None = None,
        validate_first: bool = False,
        quiet: bool = False,
        on_accepted: Callable[[], None] | None = None,
    ):
        config = scale_to_data(config, batches)
        if config.deterministic:
            keras.utils.set_random_seed(config.seed)
            tf.config.experimental.enable_op_determinism()
        self.model = model
        self.batches = batches
        self.config = config
        self.folder = Path(output_folder)
        self.objective = TeacherForcing(model, config) if objective is None else objective
        self.validate_first = validate_first
        self.on_accepted = on_accepted
        self.strategy = tf.distribute.get_strategy()
        self.is_chief = is_chief(self.strategy)
        self.state = RunState()
        self.total_steps = count_steps(batches, config)
        signature = batches.batches(0).element_spec
        with self.strategy.scope():
            if not model.built:
                model.build(keras.tree.map_structure(lambda spec: tuple(spec.shape), signature))
            freeze(model, config.freeze)
            self.optimizer = _make_optimizer(model, config, self.total_steps)
            self.average = None if config.ema is None else MovingAverage(model.trainable_variables, float(config.ema))
            signature = self.objective.signature(signature)
            self.train_step = TrainStep(
                model, self.objective, self.optimizer, self.average, signature, config.accumulate
            )
        self.report = RunReport(config, self.folder if self.is_chief else None, self.total_steps, quiet)
        self.checkpoints = CheckpointFolder(self.folder / "checkpoints")
        self.validation = Validation(
            model, config, validate, self.average, self.checkpoints, self.report, self.is_chief
        )
        self._description = describe_run(config, batches)
        self._clock_zero = self._saved_at = time.monotonic()
        self._signal: int | None = None

    def fit(self, restart: bool = False) -> History:
        """Train to the end and leave the model with the best weights.

        Args:
            restart: whether to discard a run that the folder holds already and start again.

        Raises:
            TrainingInterrupted: SIGINT or SIGTERM arrived. The same call resumes the run.
            BlockingIOError: another process trains in the same folder.
            OSError: the disk is full. The same call resumes the run.
        """
        lock = files.locked_folder(self.folder) if self.is_chief else contextlib.nullcontext()
        with lock, self._explained_errors():
            self._start_or_resume(restart)
            if not self.state.finished:
                with self.report.progress, self._stopping_at_signals():
                    self._train()
            self._load_best()
        state = self.state
        measured = [name for entry in state.validations[:1] for name in entry if name not in ("step", "epoch")]
        return History(
            steps=state.step,
            seconds=state.seconds,
            skipped_steps=state.skipped_steps,
            validations=state.validations,
            best=state.best,
            best_step=state.best_step,
            stopped_by=state.finished,
            metric=(self.config.metric or measured[0]) if measured else None,
        )

    @contextlib.contextmanager
    def _explained_errors(self) -> Iterator[None]:
        resume = f"the run resumes from the last checkpoint in {self.folder}"
        try:
            yield
        except tf.errors.UnavailableError as error:
            raise ConnectionError(
                f"Another worker was lost after step {self.state.step:,}. Start all workers again with the same call: "
                f"{resume}."
            ) from error
        except OSError as error:
            if error.errno not in files.DISK_FULL:
                raise
            message = f"The disk is full: {error.filename} cannot be written ({error.strerror})."
            raise OSError(error.errno, f"{message} Free some space and repeat the same call: {resume}.") from error

    @contextlib.contextmanager
    def _stopping_at_signals(self) -> Iterator[None]:
        """Let the first SIGINT or SIGTERM end the run after the current step. A second one acts as it did before.

        Several processes would have to stop at the same step, and only the main thread can handle signals: elsewhere
        signals act as before.
        """
        is_alone = len(local_shards(self.strategy)) == self.strategy.num_replicas_in_sync
        if not is_alone or threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: Any) -> None:
            self._signal = number
            restore()
            print("\nStopping after this step. Once more to stop at once, without a checkpoint.", file=sys.stderr)

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            restore()

    def _check_signal(self) -> None:
        if self._signal is not None:
            self._save()
            name = signal.Signals(self._signal).name
            raise TrainingInterrupted(
                f"{name} stopped the run after step {self.state.step:,}. Its checkpoint is in {self.folder}; the same "
                "call resumes it.",
                self._signal,
            )

    # Start and end

    def _start_or_resume(self, restart):
        if restart and self.is_chief:
            self.checkpoints.clear()
        checkpoint = None if restart else self.checkpoints.load_last()
        if checkpoint is not None:
            try:
                run, position = checkpoint.state["run"], RunState(**checkpoint.state["position"])
            except (KeyError, TypeError) as error:
                raise DamagedCheckpointError(f"{self.folder} holds no state of a run ({error}). Restart it.") from error
            check_same_run(run, self._description, self.folder)
            for name, variables in self._variables().items():
                assign_arrays(name, variables, checkpoint.arrays)
            self.state = position
            if self.state.finished == "max_minutes" and not self._reason_to_stop():
                self.state.finished = ""  # the limit was raised
        if self.on_accepted is not None and self.is_chief:
            self.on_accepted()
        self._clock_zero = time.monotonic() - self.state.seconds
        self.report.begin(self.state, new=checkpoint is None)
        if checkpoint is None:
            self._save()
        self._saved_at = time.monotonic()

    def _load_best(self):
        """Load the best weights. If their checkpoint was lost after the run, the last weights replace them."""
        try:
            self.validation.load_best()
        except (DamagedCheckpointError, FileNotFoundError) as error:
            if self.strategy.num_replicas_in_sync > 1:
                raise
            warnings.warn(
                f"{error}. The last weights of the run, of step {self.state.step:,}, replace the best ones, of step "
                f"{self.state.best_step:,}. Restart the run to train again.",
                stacklevel=3,
            )
            self.validation.replace_best(self.state)
            self._save()
            self.validation.load_best()

    def _variables(self):
        average = [] if self.average is None else self.average.variables
        return {"model": self.model.variables, "optimizer": self.optimizer.variables, "average": average}

    def _save(self):
        arrays = {}
        for name, variables in self._variables().items():
            arrays |= to_arrays(name, variables)
        if self.is_chief:
            self.checkpoints.save_last(arrays, {"run": self._description, "position": asdict(self.state)})
        self._saved_at = time.monotonic()

    # The loop

    def _train(self):
        if self.validate_first and self.state.validated_step < 0:
            self._validate()
        while not self._reason_to_stop():
            self._train_epoch()
        self.validation.conclude(self.state)
        self.state.finished = self._reason_to_stop()
        self._save()
        self._check_signal()

    def _train_epoch(self):
        state, config = self.state, self.config
        for parts, positions in self._feed():
            metrics = self.train_step(parts, positions)
            state.step += 1
            state.batch = positions[-1][1] + 1
            self.report.step(state, metrics, self.train_step.names, self.train_step.counts)
            if config.validate_unit == "steps" and state.step % config.validate_every == 0:
                self._validate()
            # Workers agree on the time, which costs a message.
            if self.strategy.num_replicas_in_sync == 1 or state.step % config.log_every == 0:
                now = time.monotonic()
                state.seconds = chief_value(self.strategy, now - self._clock_zero)
                if chief_value(self.strategy, now - self._saved_at) >= 60 * config.checkpoint_minutes:
                    self._save()
            self._check_signal()
            if self._reason_to_stop():
                break
        if state.batch < self.batches.num_batches(state.epoch):
            return
        state.epoch += 1
        state.batch = 0
        if config.validate_unit == "epochs" and state.epoch % config.validate_every == 0:
            self._validate()

    def _feed(self):
        """Yield the batches of each remaining step of the epoch, split for this process's replicas, and positions."""
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

    def _validate(self):
        self.validation.run(self.state)
        self._save()
        self.validation.remove_old_candidates(self.state)


def _make_optimizer(model: keras.Model, config: TrainingConfig, total_steps: int) -> AdamW:
    schedule = WarmUpSchedule(
        config.learning_rate, int(config.warmup_steps), config.schedule, total_steps, config.final_learning_rate
    )
    return AdamW(
        model.trainable_variables,
        schedule,
        weight_decay=config.weight_decay,
        clip_norm=config.clip_norm,
        loss_scaling=model.compute_dtype == "float16",
    )
