"""What the commands that write texts share: a line of text or JSON for each input, in order."""

import argparse
import json
import math
import os
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from attention_apps.cli.arguments import add_search_arguments, search_options
from attention_apps.cli.output_files import OutputFiles
from attention_apps.cli.quiet import import_tensorflow_quietly, only_python_on_stderr
from attention_apps.terminal import print_line

STANDARD_INPUT = "-"
_MAX_STANDARD_INPUT = 1 << 30


@dataclass(frozen=True)
class Answer:
    """The result of an input, or why there is none."""

    source: str
    result: Any = None
    error: str | None = None


def read_standard_input() -> bytes:
    """All of standard input, up to a limit."""
    contents = sys.stdin.buffer.read(_MAX_STANDARD_INPUT + 1)
    if len(contents) > _MAX_STANDARD_INPUT:
        raise ValueError(f"Standard input is too large: it has more than the limit of {_MAX_STANDARD_INPUT:,} bytes")
    return contents


class PredictCommand:
    """A command that writes a text for each of its inputs, however many there are.

    Subclasses name their task and change what differs.
    """

    task: str
    # Other tasks whose presets the command takes.
    other_tasks: tuple[str, ...] = ()
    metavar: str
    # How the names of the files end that are taken from a folder.
    suffixes: tuple[str, ...] = ()
    examples: tuple[str, ...]

    # What subclasses may change

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Adds options of the command's own."""

    def option_values(self, options: argparse.Namespace) -> Mapping[str, Any]:
        """What those options change in the search and the output; `None` leaves a value as it is."""
        return {}

    def inputs(self, options: argparse.Namespace) -> list[str]:
        """The inputs that were given, with the files of folders in place of the folders; by default, what is piped."""
        if options.inputs:
            return [file for name in options.inputs for file in self._files(name)]
        if sys.stdin.isatty():
            raise ValueError(f"Give at least one {self.metavar}: files, folders, or - for standard input.")
        return [STANDARD_INPUT]

    def names(self, options: argparse.Namespace) -> Iterable[str]:
        """The names that `read` is given, one for each answer."""
        return options.inputs

    def read(self, name: str) -> Any:
        """The item of a name. A `ValueError` or `OSError` is the failure of that input alone."""
        if os.path.isdir(name):
            raise ValueError(f"{name} is a folder without any file that ends in {', '.join(self.suffixes)}")
        return read_standard_input() if name == STANDARD_INPUT else name

    def entry(self, result: Any) -> Mapping[str, Any]:
        """Further JSON keys and values of a result."""
        return {}

    def lines(self, result: Any, options: argparse.Namespace) -> Iterable[str]:
        """What is printed for a result."""
        if options.num_best:
            return [line for text, score in result.alternatives for line in f"{score:.3f} {text}".split("\n")]
        return result.text.split("\n")

    def note(self, result: Any) -> str | None:
        """What the user should know about a result besides its text; printed to stderr."""
        return "the model is not sure of this" if result.unsure else None

    def load(self, options: argparse.Namespace) -> Any:
        """The application that answers."""
        return self._load(options.preset)

    def is_quiet(self, options: argparse.Namespace) -> bool:
        """Whether a long item shows no progress bar."""
        return True

    # What all commands do

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = "\n".join(["examples:", *(f"  {line}" for line in self.examples)])
        parser.add_argument(
            "inputs",
            nargs="*",
            metavar=self.metavar,
            help="files, or folders with all that is in them; - is standard input, as is nothing at all",
        )
        parser.add_argument(
            "--preset", metavar="NAME|FOLDER|hf://USER/MODEL", help="a trained model (default: the task's own)"
        )
        add_search_arguments(parser)
        parser.add_argument("--plot", metavar="DIR", help="folder for pictures of where the model looked")
        parser.add_argument("--html", metavar="DIR", help="folder for pages of where the model looked")
        parser.add_argument("--json", action="store_true", help="a line of JSON for each input")
        parser.add_argument("--quiet", action="store_true", help="no progress bar, and nothing but results and errors")
        self.add_options(parser)

    def run(self, options: argparse.Namespace) -> int:
        options.inputs = self.inputs(options)
        if options.inputs.count(STANDARD_INPUT) > 1:
            raise ValueError("`-` may be given once: standard input can be read once.")
        files = [
            OutputFiles(folder, ending, options.inputs)
            for folder, ending in ((options.plot, ".png"), (options.html, ".html"))
            if folder is not None
        ]
        import_tensorflow_quietly(options.quiet)
        application = self.load(options)
        answers = self._answers(application, options)
        failures = 0
        with only_python_on_stderr(), closing(_with_progress(answers, len(options.inputs), options.quiet)) as shown:
            for answer in shown:
                failures += answer.error is not None
                self.print_result(answer, options)
                if answer.error is None:
                    for one in files:
                        one.write(answer)
        return 1 if failures else 0

    def _files(self, name: str) -> list[str]:
        """A folder's files in the order of their names, those of its folders too; what is hidden is left out."""
        if not os.path.isdir(name):
            return [name]
        found = []
        for folder, folders, files in os.walk(name):
            folders[:] = sorted(one for one in folders if not one.startswith("."))
            endings = ((file, os.path.splitext(file)[1].lower()) for file in sorted(files))
            found += [os.path.join(folder, file) for file, ending in endings if ending in self.suffixes]
        return [file for file in found if not os.path.basename(file).startswith(".")] or [name]

    @staticmethod
    def _load_task(task: str) -> Any:
        """The application of a task with its default preset."""
        from attention_apps.applications.tasks import application_class

        return application_class(task).from_preset()

    def _load(self, preset: str | None) -> Any:
        from attention_apps.applications.tasks import load

        if preset is None:
            return self._load_task(self.task)
        application = load(preset)
        if application.task not in (self.task, *self.other_tasks):
            raise ValueError(f"{preset}: `task` must be {self.task!r}. Received: task={application.task!r}")
        return application

    def _answers(self, application: Any, options: argparse.Namespace) -> Iterator[Answer]:
        """An answer for each input in its order; the application takes items as it needs them."""
        waiting: deque[Answer] = deque()

        def items() -> Iterator[Any]:
            for name in self.names(options):
                try:
                    item = self.read(name)
                except (ValueError, OSError) as error:
                    waiting.append(Answer(name, error=str(error)))
                else:
                    waiting.append(Answer(name))
                    yield item

        changes = search_options(options, self.option_values(options))
        for result in application.run(items(), quiet=self.is_quiet(options), **changes):
            while waiting[0].error is not None:
                yield waiting.popleft()
            yield replace(waiting.popleft(), result=result, error=result.error)
        yield from waiting

    def print_result(self, answer: Answer, options: argparse.Namespace) -> None:
        if options.json:
            print_line(json.dumps(self._json_entry(answer)))
        elif answer.error is not None:
            is_named = answer.source in answer.error
            print_line(f"attention-apps: {'' if is_named else f'{answer.source}: '}{answer.error}", sys.stderr)
        else:
            label = f"{answer.source}: " if len(options.inputs) > 1 else ""
            for line in self.lines(answer.result, options):
                print_line(label + line)
            note = None if options.quiet else self.note(answer.result)
            if note is not None:
                print_line(f"attention-apps: {answer.source}: {note}", sys.stderr)

    def _json_entry(self, answer: Answer) -> dict[str, Any]:
        if answer.error is not None:
            return {"source": answer.source, "text": None, "score": None, "alternatives": [], "error": answer.error}
        result = answer.result
        return {
            "source": answer.source,
            "text": result.text,
            "score": _finite(result.score),
            "confidence": round(result.confidence, 4),
            "unsure": result.unsure,
            "alternatives": [{"text": text, "score": _finite(score)} for text, score in result.alternatives],
            **self.entry(result),
        }


def _with_progress(answers: Iterator[Answer], count: int, quiet: bool) -> Generator[Answer]:
    """The answers, with a bar on a terminal that does not show the answers themselves."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    hidden = quiet or count == 1 or not console.is_terminal or sys.stdout.isatty()
    columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    # Redirected, answers would come out where the bar is; errors, which do, come out above it.
    with Progress(*columns, console=console, transient=True, disable=hidden, redirect_stdout=False) as progress:
        yield from progress.track(answers, total=count)


def _finite(score: float) -> float | None:
    """The score, or `None` for an infinite one, which JSON cannot hold."""
    return float(score) if math.isfinite(score) else None
