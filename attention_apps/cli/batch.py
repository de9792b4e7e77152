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
from attention_apps.batch.inputs import Item, Selection, find_files, is_local, local_name, open_rows
from attention_apps.batch.plan import Part, make_parts, open_plan
from attention_apps.batch.storage import Storage
from attention_apps.batch.worker import Job, PartReport
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
from attention_apps.files import locked_folder
from attention_apps.terminal import import_tensorflow_quietly, only_python_on_stderr, print_line


@dataclass(frozen=True)
class _Verb:
    """The command, the inputs of a part by default, and the keys of a row that only this command has."""

    command: type[PredictCommand]
    part_size: int
    columns: tuple[str, ...]


# Sizes are multiples of 64, so that the application forms the same batches as in a single process.
VERBS = {
    "caption": _Verb(CaptionCommand, 512, ("tokens",)),
    "transcribe": _Verb(TranscribeCommand, 64, ("words", "seconds")),
    "summarize": _Verb(SummarizeCommand, 4096, ("tokens", "copied", "passages", "read_whole")),
    "compress": _Verb(CompressCommand, 4096, ("tokens", "copied", "passages", "read_whole")),
    "translate": _Verb(TranslateCommand, 4096, ("tokens", "source_tokens")),
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
        settings, selection = answer.settings(options), answer.selection(options)
        with locked_folder(Path(storage.folder)) if is_local(storage.folder) else nullcontext():
            storage.clean()
            plan = open_plan(storage, settings, lambda: answer.parts(options.inputs, selection, settings["part_size"]))
            finished = storage.parts()
            missing = [part for part in plan.parts if part.name not in finished]
            named = [*options.inputs, *([] if options.preset is None else [options.preset])]
            job = Job(
                storage,
                selection,
                answer,
                VERBS[options.verb].columns,
                settings["folder"],
                tuple(name for name in named if is_local(name) and os.path.exists(name)),
            )
            errors = sum(map(storage.count_errors, sorted(finished)))
            with only_python_on_stderr(), Progress(plan.parts, missing, errors, options.quiet) as progress:
                for report in run_parts(job, missing, options.workers, options.address) if missing else ():
                    progress.update(report)
            storage.clean()
        if not options.quiet:
            count = sum(part.count for part in plan.parts)
            print_line(f"attention-apps: {count:,} inputs, {progress.errors:,} errors: {storage.folder}", sys.stderr)
        return 1 if progress.errors else 0


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
        self.versions = self._versions()

    def __call__(self, items: Iterable[Item]) -> Iterator[dict[str, Any]]:
        """Yield a row for each item, in order."""
        yield from self._command.rows(self._expected_application, items, self._options)

    @cached_property
    def _expected_application(self) -> Any:
        """The application, if it is the one of the process that made this object."""
        found = self._versions()
        if found != self.versions:
            raise ValueError(f"This machine has another version or preset: {found}. Expected: {self.versions}")
        return self._application

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("verb", "preset", "changes", "versions")}

    def settings(self, options: argparse.Namespace) -> dict[str, Any]:
        """Return everything that the results depend on besides the contents of the inputs."""
        if options.lines and not isinstance(self._command, TextCommand):
            raise ValueError(f"`--lines` is for texts. Received: {self.verb}")
        search, output = self._application.split_options(self.changes)
        is_relative = any(is_local(name) and not os.path.isabs(name) for name in options.inputs)
        is_relative |= self.preset is not None and os.path.isdir(self.preset) and not os.path.isabs(self.preset)
        settings = {
            "verb": self.verb,
            "inputs": options.inputs,
            "folder": os.getcwd() if is_relative else None,
            "lines": options.lines,
            "column": self.selection(options).column,
            "preset": self.preset or self._application.default_preset,
            **self.versions,
            "search": asdict(search),
            "output": asdict(output),
            "format": options.format,
            "part_size": options.part_size or VERBS[self.verb].part_size,
        }
        return json.loads(json.dumps(settings))

    def selection(self, options: argparse.Namespace) -> Selection:
        """Return what is read from rows: the first column of the task, by the name that it has in the files."""
        examples, columns = self._application.parts.examples, parse_columns(options.column)
        ours = examples.columns[0]
        if columns.keys() - {ours}:
            raise ValueError(f"`--column` must name the column `{ours}`. Received: {', '.join(options.column)}")
        return Selection(columns.get(ours, ours), ours in examples.path_columns, options.lines)

    def parts(self, inputs: Sequence[str], selection: Selection, size: int) -> Iterator[Part]:
        """Yield the parts of the inputs."""
        files = [file for name in inputs for file in find_files(name, self._command.suffixes)]
        whole = {file for file in files if selection.format_of(file) == "lines" and not _has_lines(file)}
        return make_parts(files, selection, size, whole)

    @cached_property
    def _command(self) -> Any:
        return type("PartCommand", (_PartCommand, VERBS[self.verb].command), {})()

    @cached_property
    def _options(self) -> argparse.Namespace:
        """The options of the verb's own command."""
        parser = argparse.ArgumentParser()
        self._command.add_arguments(parser)
        options = parser.parse_args(["--json", "--quiet"])
        vars(options).update(preset=self.preset, **self.changes)
        return options

    @cached_property
    def _application(self) -> Any:
        return self._command.load(self._options)

    def _versions(self) -> dict[str, str]:
        from attention_apps.applications.preset import SUMS, find_preset

        folder = find_preset(self._application.default_preset if self.preset is None else self.preset)
        return {"version": __version__, "preset_sha256": hashlib.sha256((folder / SUMS).read_bytes()).hexdigest()}


class _PartCommand(PredictCommand):
    """A command that takes items of a part in place of the inputs of its command line."""

    def rows(self, application: Any, items: Iterable[Item], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
        options.inputs = items
        return (self._json_entry(answer) for answer in self._answers(application, options))

    def names(self, options: argparse.Namespace) -> Iterable[Item]:
        return options.inputs

    def read(self, name: Item) -> Any:  # type: ignore[override]
        if name.error is None and name.contents is None and is_local(name):
            return super().read(str(name))
        contents = name.read()
        if name.contents is None and isinstance(self, TextCommand):
            check_text(name, contents)
        return contents


def _has_lines(file: str) -> bool:
    """Return whether a file is a text; one that is not fails as a whole, not line by line."""
    try:
        with open_rows(file) as lines:
            check_text(file, lines.readline())
    except (OSError, ValueError):
        return False
    return True


class Progress:
    """A bar on the terminal, or a line now and then, while parts are made.

    Attributes:
        errors: inputs without an answer so far.
    """

    def __init__(self, parts: Sequence[Part], missing: Sequence[Part], errors: int, quiet: bool):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self.errors = errors
        self._num_parts, self._parts_left = len(parts), len(missing)
        self._count = sum(part.count for part in parts)
        self._done = self._count - sum(part.count for part in missing)
        self._quiet = quiet
        console = Console(stderr=True)
        self._bar = Bar(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[errors]} errors"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=self._count, completed=self._done, errors=errors)
        self._start, self._done_before, self._last_line = time.monotonic(), self._done, float("-inf")

    def __enter__(self) -> "Progress":
        if self._done and not self._quiet:
            there = self._num_parts - self._parts_left
            print_line(f"attention-apps: {there:,} of {self._num_parts:,} parts are there already", sys.stderr)
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, report: PartReport) -> None:
        """Count a finished part."""
        self.errors += report.errors
        self._done += report.count
        self._parts_left -= 1
        self._bar.update(self._task, completed=self._done, errors=self.errors)
        now = time.monotonic()
        if self._bar.disable and not self._quiet and now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            rate = (self._done - self._done_before) / max(now - self._start, 1e-9)
            print_line(
                f"attention-apps: {self._done:,} of {self._count:,} inputs, {self.errors:,} errors, "
                f"{rate:,.1f} a second, {(self._count - self._done) / max(rate, 1e-9) / 60:,.0f} minutes left",
                sys.stderr,
            )
