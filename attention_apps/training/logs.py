"""Reports on a run: the live line on the terminal, CSV tables, TensorBoard, and samples of generated text."""

import csv
import io
import json
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from attention_apps import files
from attention_apps.terminal import printable
from attention_apps.training.checkpoint import RunState
from attention_apps.training.config import TrainingConfig
from attention_apps.training.train_step import StepMetrics

# Seconds between two updates of the live line, and between two plain lines where there is no terminal.
SHOW_SECONDS = 1.0
PLAIN_SECONDS = 30.0
# How many samples of a validation are shown; the log has all of them.
SHOWN_SAMPLES = 3

# A source, its reference and the generated text.
Sample = tuple[str, str, str]


class RunReport:
    """Shows and logs the progress of a run.

    Args:
        folder: for the logs, or `None` in a process that writes none.
        total_steps: the expected number of steps of the run.
    """

    def __init__(self, config: TrainingConfig, folder: Path | None, total_steps: int, quiet: bool):
        self.config = config
        self.total_steps = total_steps
        self.progress = ProgressLine(quiet or folder is None)
        self._logs = None if folder is None else RunLogs(folder)
        self._metrics = StepMetrics()
        self._shown = self._began = time.monotonic()
        self._first_step = self._skipped_before = 0

    def begin(self, state: RunState, new: bool) -> None:
        """Called before the first step of this process. Removes log entries written after the checkpoint."""
        self._began = time.monotonic()
        self._first_step = state.step
        self._skipped_before = state.skipped_steps
        if self._logs is not None:
            self._logs.truncate_after(-1 if new else state.step)
        if not new and not state.finished:
            self.progress.note(f"resuming from step {state.step:,}")

    def step(self, state: RunState, metrics: tf.Tensor, names: list[str], counts: list[str]) -> None:
        """Called after each step. The metrics stay on the device until they are shown or logged."""
        self._metrics.add(metrics)
        log_due = state.step % self.config.log_every == 0
        if log_due or time.monotonic() - self._shown >= SHOW_SECONDS:
            self._shown = time.monotonic()
            self._show(state, names, counts, log_due)

    def validation(self, state: RunState, metrics: Mapping[str, float], samples: Sequence[Sample]) -> None:
        """Called after each validation."""
        text = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        self.progress.note(f"step {state.step:,}: {text}")
        for source, reference, generated in samples[:SHOWN_SAMPLES]:
            self.progress.note(f"  {source}: {generated}")
            self.progress.note(f"    (reference: {reference})")
        if self._logs is not None:
            self._logs.validation(state.step, state.epoch, metrics, samples)

    def _show(self, state, names, counts, log_due):
        metrics = self._metrics.fetch(names, counts, end_window=log_due)
        state.skipped_steps = self._skipped_before + self._metrics.skipped
        if metrics:
            seconds_per_step = (time.monotonic() - self._began) / (state.step - self._first_step)
            left = seconds_per_step * (self.total_steps - state.step)
            if self.config.max_minutes is not None:
                left = min(left, 60 * self.config.max_minutes - state.seconds)
            text = (
                f"epoch {state.epoch + 1}/{self.config.epochs}, step {state.step:,}/{self.total_steps:,}, "
                f"loss {metrics['loss']:.3f}, {metrics['tokens_per_second']:,.0f} tokens/s"
            )
            self.progress.update(text, state.step / self.total_steps, left)
        if log_due and metrics and self._logs is not None:
            self._logs.training(state.step, state.epoch + 1, metrics)


class ProgressLine:
    """One live line on the error stream, plain lines if that is not a terminal, or nothing if quiet."""

    def __init__(self, quiet: bool = False):
        self._console = None if quiet else Console(stderr=True)
        self._live: Progress | None = None
        self._printed = 0.0

    def __enter__(self) -> "ProgressLine":
        if self._console is not None and self._console.is_terminal:
            columns = TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn()
            self._live = Progress(*columns, console=self._console, refresh_per_second=4, transient=True)
            self._live.add_task("starting", total=1.0)
            self._live.start()
        return self

    def __exit__(self, *_) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, text: str, fraction: float, seconds_left: float) -> None:
        """Show the state of the run: epoch, step, loss and speed, and the fraction of the run that is done."""
        if self._console is None:
            return
        text = f"{text}, {format_duration(seconds_left)} left"
        if self._live is not None:
            self._live.update(self._live.task_ids[0], description=text, completed=min(fraction, 1.0))
        elif time.monotonic() - self._printed >= PLAIN_SECONDS:
            self._printed = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Print a permanent line."""
        text = printable(text)
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        elif self._console is not None:
            print(text, file=sys.stderr, flush=True)


def format_duration(seconds: float) -> str:
    """Format 75 as `1:15` and 7500 as `2:05:00`."""
    minutes, seconds = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class RunLogs:
    """The log files of one run: `training.csv`, `validation.csv`, `samples.jsonl`, and the folder `tensorboard`.

    `samples.jsonl` has the texts generated in each validation and their references.
    """

    def __init__(self, folder: Path):
        self._training = CsvLog(folder / "training.csv")
        self._validation = CsvLog(folder / "validation.csv")
        self._samples = folder / "samples.jsonl"
        self._tensorboard = TensorBoardLog(folder / "tensorboard")

    def truncate_after(self, step: int) -> None:
        """Remove what a killed run logged after its last checkpoint, and damaged lines. Step -1 removes everything."""
        if step < 0:
            for path in (self._training.path, self._validation.path, self._samples):
                path.unlink(missing_ok=True)
            self._tensorboard.clear()
        else:
            self._training.truncate_after(step)
            self._validation.truncate_after(step)
            _keep_until(self._samples, step, lambda number, line: int(json.loads(line)["step"]))

    def training(self, step: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of training steps."""
        self._training.write({"step": step, "epoch": epoch, **metrics})
        self._tensorboard.write("training", step, metrics)

    def validation(self, step: int, epoch: int, metrics: Mapping[str, float], samples: Sequence[Sample]) -> None:
        """Log the metrics and samples of a validation."""
        self._validation.write({"step": step, "epoch": epoch, **metrics})
        names = ("source", "reference", "generated")
        entries = [{"step": step, **dict(zip(names, sample, strict=True))} for sample in samples]
        lines = [json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries]
        files.append_to_file(self._samples, "".join(lines).encode())
        self._tensorboard.write("validation", step, metrics, samples)


@dataclass(frozen=True)
class CsvLog:
    """A table with a row for some of the steps."""

    path: Path

    def write(self, row: Mapping[str, float]) -> None:
        """Append a row. The first row determines the columns."""
        columns = self._columns()
        text = io.StringIO()
        writer = csv.DictWriter(text, columns or list(row), lineterminator="\n")
        if not columns:
            writer.writeheader()
        writer.writerow({name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()})
        files.append_to_file(self.path, text.getvalue().encode())

    def truncate_after(self, step: int) -> None:
        """Remove the rows of later steps and, with a warning, rows that are damaged."""
        columns = self._columns()

        def parse_step(number: int, line: str) -> int:
            fields = next(csv.reader([line]))
            if number > 1 and len(fields) != len(columns):
                raise ValueError(f"has {len(fields)} fields instead of {len(columns)}")
            return -1 if number == 1 else int(fields[0])  # the header stays

        _keep_until(self.path, step, parse_step)

    def _columns(self) -> list[str]:
        if not self.path.exists():
            return []
        with self.path.open(encoding="utf-8", errors="replace") as file:
            return next(csv.reader([file.readline()]), [])


class TensorBoardLog:
    """Event files for TensorBoard, which TensorFlow writes. A failure, such as a full disk, only disables this log."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._writer: tf.summary.SummaryWriter | None = None
        self._failed = False

    def clear(self) -> None:
        """Remove all events."""
        self._writer = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(
        self, group: str, step: int, metrics: Mapping[str, float], samples: Sequence[Sample] | None = None
    ) -> None:
        """Write metrics as scalars and samples as texts."""
        if self._failed:
            return
        try:
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(str(self.folder))
            with self._writer.as_default():
                for name, value in metrics.items():
                    kind = _summary_metadata("scalars", "DATA_CLASS_SCALAR")
                    tf.summary.write(f"{group}/{name}", tf.constant(value, tf.float32), step, kind)
                for number, (source, reference, generated) in enumerate(samples or ()):
                    text = f"{source}\n\n**{generated}**\n\n{reference}"
                    tf.summary.write(f"samples/{number}", text, step, _summary_metadata("text", "DATA_CLASS_TENSOR"))
            if samples is not None:
                self._writer.flush()
        except (tf.errors.OpError, OSError) as error:
            self._failed = True
            warnings.warn(f"No more TensorBoard events are written to {self.folder}: {error}", stacklevel=2)


def _summary_metadata(plugin: str, data_class: str) -> tf.compat.v1.SummaryMetadata:
    """How TensorBoard shows an entry. Set here because `tf.summary.scalar` requires TensorBoard to be installed."""
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = plugin
    metadata.data_class = metadata.DESCRIPTOR.fields_by_name["data_class"].enum_type.values_by_name[data_class].number
    return metadata


def _keep_until(path: Path, step: int, parse_step: Callable[[int, str], int]) -> None:
    """Keep the lines of a log up to a step. Damaged lines are dropped with a warning."""
    content = path.read_bytes().decode("utf-8", errors="replace") if path.exists() else ""
    # The last line has no line break if a process died while writing it.
    lines = content.replace("\r\n", "\n").split("\n")[:-1]
    kept = []
    for number, line in enumerate(lines, start=1):
        try:
            if parse_step(number, line) <= step:
                kept.append(line)
        except (ValueError, KeyError, TypeError, IndexError, StopIteration, csv.Error) as error:
            warnings.warn(f"{path}, line {number}: dropped a damaged row of the log ({error})", stacklevel=2)
    if kept:
        files.replace_file(path, "".join(f"{line}\n" for line in kept).encode())
    else:
        path.unlink(missing_ok=True)
