"""The command `batch`."""

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from attention_apps._version import __version__
from attention_apps.applications.tasks import application_class
from attention_apps.batch.cluster import Job, PartReport
from attention_apps.batch.inputs import Item, Selection, find_files, is_local, local_name, open_rows
from attention_apps.batch.results import Part, Storage, make_parts, open_plan
from attention_apps.checks import require
from attention_apps.cli.predict import PredictCommand, add_search_arguments, search_options
from attention_apps.cli.predict_commands import (
    CaptionCommand,
    CompressCommand,
    SummarizeCommand,
    TextCommand,
    TranscribeCommand,
    TranslateCommand,
    check_text,
)
from attention_apps.cli.train import add_column_argument, parse_columns
from attention_apps.data.manifest import MAX_LINE_BYTES
from attention_apps.files import locked_folder
from attention_apps.terminal import import_tensorflow_quietly, only_python_on_stderr, print_line


@dataclass(frozen=True)
class _Verb:
    """The command, and the inputs of a part by default."""

    command: type[PredictCommand]
    part_size: int


# Sizes are multiples of 64, so that the application forms the same batches as in a single process.
VERBS = {
    "caption": _Verb(CaptionCommand, 512),
    "transcribe": _Verb(TranscribeCommand, 64),
    "summarize": _Verb(SummarizeCommand, 4096),
    "compress": _Verb(CompressCommand, 4096),
    "translate": _Verb(TranslateCommand, 4096),
}
# Seconds between two lines about the progress, where there is no terminal for a bar.
_SECONDS_BETWEEN_LINES = 30


class BatchCommand:
    """Answer many inputs on several workers or machines, and write the rows to files.

    The rows are those that the command of the same name prints with `--json`. The same command resumes: parts that are
    finished are skipped. Needs `pip install 'attention_apps[ray]'`.
    """

    examples = (
        "attention-apps batch caption photos/ --output captions/",
        "attention-apps batch transcribe 's3://bucket/calls/*.wav' --output s3://bucket/out --address head:6379",
        "attention-apps batch summarize articles.jsonl --column document=body --output summaries/ --format parquet",
        "attention-apps batch translate --lines sentences.txt --output translations/ --workers 8",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("verb", choices=VERBS, metavar="VERB", help=", ".join(VERBS))
        parser.add_argument(
            "inputs",
            nargs="+",
            metavar="INPUT",
            help="files, folders, glob patterns, manifests (.csv, .tsv, .jsonl) and .parquet files: paths or URLs",
        )
        parser.add_argument("--output", required=True, metavar="DIR", help="folder or URL for the parts of the results")
        parser.add_argument(
            "--format", choices=("jsonl", "parquet"), default="jsonl", help="of the parts (default: jsonl)"
        )
        parser.add_argument("--part-size", type=int, metavar="N", help="inputs of a part")
        parser.add_argument(
            "--workers", type=int, metavar="N", help="processes, one thread each (default: one for each CPU)"
        )
        parser.add_argument(
            "--address", metavar="HOST:PORT", help="Ray cluster to join (default: Ray on this machine only)"
        )
        parser.add_argument(
            "--preset", metavar="NAME|FOLDER|hf://USER/MODEL", help="a trained model (default: the task's own)"
        )
        add_search_arguments(parser)
        add_column_argument(parser)
        parser.add_argument("--lines", action="store_true", help="every line of a text file is a text")
        parser.add_argument("--quiet", action="store_true", help="no progress, and nothing but errors")

    def run(self, options: argparse.Namespace) -> int:
        for name in ("part_size", "workers"):
            value = getattr(options, name)
            require(value is None or value >= 1, name, "at least 1", value)
        from attention_apps.batch.cluster import import_ray, run_parts

        import_ray()
        import_tensorflow_quietly(options.quiet)
        options.inputs = [local_name(name) for name in options.inputs]
        storage = Storage(options.output, options.format)
        answer = Answer(options.verb, options.preset, search_options(options))
        selection = answer.selection(options)
        settings = answer.settings(options, selection)
        with locked_folder(Path(storage.folder)) if is_local(storage.folder) else nullcontext():
            storage.clean()
            plan = open_plan(storage, settings, lambda: answer.parts(options.inputs, selection, settings["part_size"]))
            finished = storage.parts()
            missing = [part for part in plan.parts if part.name not in finished]
            named = [*options.inputs, *([] if options.preset is None else [options.preset])]
            required = tuple(name for name in named if is_local(name) and os.path.exists(name))
            columns = tuple(VERBS[options.verb].command.columns)
            job = Job(storage, selection, answer, columns, settings["folder"], required)
            errors = sum(map(storage.count_errors, sorted(finished)))
            with only_python_on_stderr():
                reports = run_parts(job, missing, options.workers, options.address) if missing else ()
                errors = _show_progress(reports, plan.parts, missing, errors, options.quiet)
            storage.clean()
        if not options.quiet:
            count = sum(part.count for part in plan.parts)
            print_line(f"attention-apps: {count:,} inputs, {errors:,} errors: {storage.folder}", sys.stderr)
        return 1 if errors else 0


class Answer:
    """Answer the inputs of parts with the rows that the command of a verb prints with `--json`.

    It is pickled for the workers, which load the application themselves.

    Args:
        preset: a preset's name, folder or handle; `None` for the default one of the task.
        changes: options of the search.
    """

    def __init__(self, verb: str, preset: str | None, changes: Mapping[str, Any]):
        self.verb = verb
        self.preset = preset
        self.changes = dict(changes)
        self.versions: dict[str, str] | None = None
        *_, self.versions = self._loaded

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_loaded"}

    def __call__(self, items: Iterable[Item]) -> Iterator[dict[str, Any]]:
        """Yield a row for each item, in order."""
        command, options, application, _ = self._loaded
        return map(command.json_entry, command.answers(application, items, options))

    @cached_property
    def _loaded(self) -> tuple[PredictCommand, argparse.Namespace, Any, dict[str, str]]:
        """The verb's own command and its options, and the application and its versions.

        Raises:
            ValueError: the versions are not those of the process that made this object.
        """
        from attention_apps.applications.preset import SUMS, find_preset

        command = VERBS[self.verb].command()
        folder = find_preset(application_class(command.task).default_preset if self.preset is None else self.preset)
        digest = hashlib.sha256((folder / SUMS).read_bytes()).hexdigest()
        found = {"version": __version__, "preset_sha256": digest}
        if self.versions not in (None, found):
            raise ValueError(f"This machine has another version or preset: {found}. Expected: {self.versions}")
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        options = parser.parse_args(["--json", "--quiet"])
        vars(options).update(preset=self.preset, **self.changes)
        return command, options, command.load(options), found

    def selection(self, options: argparse.Namespace) -> Selection:
        """Return what is read from rows: the first column of the task, by the name that it has in the files."""
        command, _, application, _ = self._loaded
        if options.lines and not isinstance(command, TextCommand):
            raise ValueError(f"`--lines` is for texts. Received: {self.verb}")
        examples, columns = application.parts.examples, parse_columns(options.column)
        ours = examples.columns[0]
        if columns.keys() - {ours}:
            raise ValueError(f"`--column` must name the column `{ours}`. Received: {', '.join(options.column)}")
        return Selection(columns.get(ours, ours), ours in examples.path_columns, options.lines)

    def settings(self, options: argparse.Namespace, selection: Selection) -> dict[str, Any]:
        """Return everything that the results depend on besides the contents of the inputs."""
        _, _, application, versions = self._loaded
        search, output = application.split_options(self.changes)
        is_relative = any(is_local(name) and not os.path.isabs(name) for name in options.inputs)
        is_relative |= self.preset is not None and os.path.isdir(self.preset) and not os.path.isabs(self.preset)
        settings = {
            "verb": self.verb,
            "inputs": options.inputs,
            "folder": os.getcwd() if is_relative else None,
            "lines": options.lines,
            "column": selection.column,
            "preset": self.preset or application.default_preset,
            **versions,
            "search": asdict(search),
            "output": asdict(output),
            "format": options.format,
            "part_size": options.part_size or VERBS[self.verb].part_size,
        }
        return json.loads(json.dumps(settings))

    def parts(self, inputs: Sequence[str], selection: Selection, size: int) -> Iterator[Part]:
        """Yield the parts of the inputs."""
        suffixes, whole = VERBS[self.verb].command.suffixes, set()
        files = [file for name in inputs for file in find_files(name, suffixes)]
        for file in files:
            if selection.format_of(file) == "lines":
                try:
                    with open_rows(file) as lines:
                        check_text(file, lines.readline(MAX_LINE_BYTES))
                except (OSError, ValueError):  # a file that is no text fails as a whole, not line by line
                    whole.add(file)
        return make_parts(files, selection, size, whole)


def _show_progress(
    reports: Iterable[PartReport], parts: Sequence[Part], missing: Sequence[Part], errors: int, quiet: bool
) -> int:
    """Show a bar on the terminal, or a line now and then, while parts are made. Return how many inputs failed.

    Args:
        errors: inputs of the other parts that failed.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    count, there = sum(part.count for part in parts), len(parts) - len(missing)
    before = done = count - sum(part.count for part in missing)
    if done and not quiet:
        print_line(f"attention-apps: {there:,} of {len(parts):,} parts are there already", sys.stderr)
    console = Console(stderr=True)
    columns = BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[errors]} errors"), TimeRemainingColumn()
    bar = Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
    task = bar.add_task("", total=count, completed=done, errors=errors)
    start, last_line = time.monotonic(), float("-inf")
    with bar:
        for report in reports:
            errors += report.errors
            done += report.count
            bar.update(task, completed=done, errors=errors)
            now = time.monotonic()
            if bar.disable and not quiet and now - last_line >= _SECONDS_BETWEEN_LINES:
                last_line = now
                rate = (done - before) / max(now - start, 1e-9)
                print_line(
                    f"attention-apps: {done:,} of {count:,} inputs, {errors:,} errors, {rate:,.1f} a second, "
                    f"{(count - done) / max(rate, 1e-9) / 60:,.0f} minutes left",
                    sys.stderr,
                )
    return errors
