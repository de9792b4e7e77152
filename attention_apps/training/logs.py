"""Files that tell how a run went: CSV tables, TensorBoard, and samples of what the model wrote."""

import csv
import io
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import tensorflow as tf


class CsvLog:
    """A table with one row for each of some steps. A run that goes on from a checkpoint cuts off what came after it."""

    def __init__(self, path: Path):
        self.path = path

    def write(self, row: Mapping[str, float]) -> None:
        """Appends a row; the first one's names head the columns, and a later row has no others."""
        new = not self.path.exists()
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(row) if new else self._columns())
            if new:
                writer.writeheader()
            writer.writerow({name: _short(value) for name, value in row.items()})

    def cut_after(self, step: int) -> None:
        """Removes rows of later steps, and a last one that was not written to its end."""
        lines = _whole_lines(self.path)
        rows = [next(csv.reader([line])) for line in lines]
        text = io.StringIO()
        kept = [row for number, row in enumerate(rows) if number == 0 or int(row[0]) <= step]
        csv.writer(text, lineterminator="\n").writerows(kept)
        _replace(self.path, text.getvalue())

    def _columns(self):
        with self.path.open(newline="", encoding="utf-8") as file:
            return next(csv.reader(file))


class SampleLog:
    """JSON lines of texts that the model generated in each validation, next to the references."""

    def __init__(self, path: Path):
        self.path = path

    def write(self, step: int, samples: Sequence[tuple[str, str, str]]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            for source, reference, generated in samples:
                entry = {"step": step, "source": source, "reference": reference, "generated": generated}
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def cut_after(self, step: int) -> None:
        """Removes lines of later steps, and a last one that was not written to its end."""
        kept = [line for line in _whole_lines(self.path) if json.loads(line)["step"] <= step]
        _replace(self.path, "".join(line + "\n" for line in kept))


class RunLogs:
    """All the files of one run: `training.csv`, `validation.csv`, `samples.jsonl`, and the folder `tensorboard`."""

    def __init__(self, folder: Path):
        self._training = CsvLog(folder / "training.csv")
        self._validation = CsvLog(folder / "validation.csv")
        self._samples = SampleLog(folder / "samples.jsonl")
        self._tensorboard = folder / "tensorboard"
        self._writer = tf.summary.create_file_writer(str(self._tensorboard))

    def go_on_from(self, step: int) -> None:
        """Forgets what a run that was killed wrote after its last checkpoint; step -1 forgets all."""
        for log in (self._training, self._validation, self._samples):
            if step < 0:
                log.path.unlink(missing_ok=True)
            else:
                log.cut_after(step)
        if step < 0:
            shutil.rmtree(self._tensorboard)
            self._writer = tf.summary.create_file_writer(str(self._tensorboard))

    def training(self, step: int, epoch: int, figures: Mapping[str, float]) -> None:
        self._training.write({"step": step, "epoch": epoch, **figures})
        self._summarize("training", step, figures)

    def validation(
        self, step: int, epoch: int, metrics: Mapping[str, float], samples: Sequence[tuple[str, str, str]]
    ) -> None:
        self._validation.write({"step": step, "epoch": epoch, **metrics})
        self._samples.write(step, samples)
        self._summarize("validation", step, metrics)
        with self._writer.as_default():
            for number, (source, reference, generated) in enumerate(samples):
                text = f"{source}\n\n**{generated}**\n\n{reference}"
                tf.summary.write(f"samples/{number}", text, step, _kind("text", "DATA_CLASS_TENSOR"))
        self._writer.flush()

    def _summarize(self, group, step, figures):
        with self._writer.as_default():
            for name, value in figures.items():
                figure = tf.constant(value, tf.float32)
                tf.summary.write(f"{group}/{name}", figure, step, _kind("scalars", "DATA_CLASS_SCALAR"))


def _kind(plugin: str, data_class: str) -> tf.compat.v1.SummaryMetadata:
    """How TensorBoard shows an entry; said here because `tf.summary.scalar` needs TensorBoard to be installed."""
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = plugin
    metadata.data_class = metadata.DESCRIPTOR.fields_by_name["data_class"].enum_type.values_by_name[data_class].number
    return metadata


def _short(value):
    return f"{value:.6g}" if isinstance(value, float) else value


def _whole_lines(path: Path) -> list[str]:
    """The lines of a file that end as lines do; none if there is no file."""
    if not path.exists():
        return []
    return path.read_text(encoding="utf-8").replace("\r\n", "\n").split("\n")[:-1]


def _replace(path: Path, text: str) -> None:
    if not text:
        path.unlink(missing_ok=True)
        return
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
