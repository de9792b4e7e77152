"""What the commands that write texts share: a line of text or JSON for each input, in order."""

import argparse
import json
import math
import os
import re
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from attention_apps.applications.tasks import application_class, load
from attention_apps.batch.inputs import Item, is_local
from attention_apps.files import folder_files
from attention_apps.terminal import import_tensorflow_quietly, only_python_on_stderr, print_line

STANDARD_INPUT = "-"
MAX_INPUT = 1 << 30
_LONGEST_STEM = 80


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the search."""
    parser.add_argument("--beam-size", type=int, metavar="N", help="hypotheses of the search; 1 is greedy")
    parser.add_argument("--num-best", type=int, metavar="N", help="texts for each input, best first")
    parser.add_argument("--max-length", type=int, metavar="N", help="the longest text, in tokens of the model")


def search_options(options: argparse.Namespace, others: Iterable[str] = ()) -> dict[str, Any]:
    """Return the options of the search and the output that the user gave, as keywords.

    Args:
        others: the names of further options.
    """
    names = ("beam_size", "num_best", "max_length", *others)
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


@dataclass(frozen=True)
class Answer:
    """The result of an input, or why there is none."""

    source: str
    result: Any = None
    error: str | None = None


class PredictCommand:
    """A command that writes a text for each of its inputs, however many there are.

    Subclasses name their task and override what differs.
    """

    task: str
    # Other tasks whose presets the command accepts.
    other_tasks: tuple[str, ...] = ()
    metavar: str
    # The suffixes of the files that are taken from a folder.
    suffixes: tuple[str, ...] = ()
    examples: tuple[str, ...]
    # The command's own options that change the search or the output, as they are called in Python.
    output_options: tuple[str, ...] = ()
    # Further keys of the JSON of a result, and how their values are read from it.
    columns: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    # Whether an item may take so long that it has a progress bar of its own.
    has_long_items = False

    # What subclasses may override

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own options."""

    def inputs(self, options: argparse.Namespace) -> list[str]:
        """Return the inputs, with the files of folders in place of the folders. By default, standard input."""
        if not options.inputs and sys.stdin.isatty():
            raise ValueError(f"Give at least one {self.metavar}: files, folders, or - for standard input.")
        found = []
        for name in options.inputs:
            files = folder_files(name, self.suffixes) if os.path.isdir(name) else []
            found += files or [name]
        return found or [STANDARD_INPUT]

    def names(self, options: argparse.Namespace) -> Iterable[str]:
        """Return the names that `read` is given, one for each answer."""
        return options.inputs

    def read(self, name: str) -> Any:
        """Return the item of a name. A `ValueError` or `OSError` is the failure of that input alone."""
        if isinstance(name, Item) and not (is_local(name) and name.contents is None and name.error is None):
            return name.read()
        if os.path.isdir(name):
            raise ValueError(f"{name} is a folder without any file that ends in {', '.join(self.suffixes)}")
        if name != STANDARD_INPUT:
            return str(name)
        return read_bounded(sys.stdin.buffer, "Standard input")

    def lines(self, result: Any, options: argparse.Namespace) -> Iterable[str]:
        """Return what is printed for a result."""
        if options.num_best:
            return [line for text, score in result.alternatives for line in f"{score:.3f} {text}".split("\n")]
        return result.text.split("\n")

    def note(self, result: Any) -> str | None:
        """Return what the user should know about a result besides its text. It is printed to stderr."""
        return "the model is not sure of this" if result.unsure else None

    def load(self, options: argparse.Namespace) -> Any:
        """Return the application that answers."""
        if options.preset is None:
            return application_class(self.task).from_preset()
        application = load(options.preset)
        if application.task not in (self.task, *self.other_tasks):
            raise ValueError(f"{options.preset}: `task` must be {self.task!r}. Received: task={application.task!r}")
        return application

    # What all commands do

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
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
        answers = self.answers(application, self.names(options), options)
        failures = 0
        with only_python_on_stderr(), closing(_with_progress(answers, len(options.inputs), options.quiet)) as shown:
            for answer in shown:
                failures += answer.error is not None
                self.print_result(answer, options)
                if answer.error is None:
                    for one in files:
                        one.write(answer)
        return 1 if failures else 0

    def answers(self, application: Any, names: Iterable[str], options: argparse.Namespace) -> Iterator[Answer]:
        """Yield an answer for each name, in order. The application takes items as it needs them."""
        waiting: deque[Answer] = deque()

        def items() -> Iterator[Any]:
            for name in names:
                try:
                    item = self.read(name)
                except (ValueError, OSError) as error:
                    waiting.append(Answer(name, error=str(error)))
                else:
                    waiting.append(Answer(name))
                    yield item

        # Several long items whose texts do not go to the terminal have one bar for all.
        has_bar = self.has_long_items and not options.quiet and (len(options.inputs) == 1 or sys.stdout.isatty())
        changes = search_options(options, self.output_options)
        for result in application.run(items(), quiet=not has_bar, **changes):
            while waiting[0].error is not None:
                yield waiting.popleft()
            yield replace(waiting.popleft(), result=result, error=result.error)
        yield from waiting

    def print_result(self, answer: Answer, options: argparse.Namespace) -> None:
        if options.json:
            print_line(json.dumps(self.json_entry(answer)))
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

    def json_entry(self, answer: Answer) -> dict[str, Any]:
        """Return what `--json` prints."""
        if answer.error is not None:
            return {"source": answer.source, "text": None, "score": None, "alternatives": [], "error": answer.error}

        def finite(score: float) -> float | None:  # JSON has no infinity
            return float(score) if math.isfinite(score) else None

        result = answer.result
        return {
            "source": answer.source,
            "text": result.text,
            "score": finite(result.score),
            "confidence": round(result.confidence, 4),
            "unsure": result.unsure,
            "alternatives": [{"text": text, "score": finite(score)} for text, score in result.alternatives],
            **{name: read(result) for name, read in self.columns.items()},
        }


def read_bounded(file: BinaryIO, name: str) -> bytes:
    """Return the contents of a file that may have no end, such as a pipe."""
    contents = file.read(MAX_INPUT + 1)
    if len(contents) > MAX_INPUT:
        raise ValueError(f"{name} is too large: it has more than the limit of {MAX_INPUT:,} bytes")
    return contents


def _with_progress(answers: Iterator[Answer], count: int, quiet: bool) -> Generator[Answer]:
    """Yield the answers, with a progress bar if the terminal does not show the answers themselves."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    hidden = quiet or count == 1 or not console.is_terminal or sys.stdout.isatty()
    columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    # Redirected, answers would be printed where the bar is. Errors are redirected, and printed above it.
    with Progress(*columns, console=console, transient=True, disable=hidden, redirect_stdout=False) as progress:
        yield from progress.track(answers, total=count)


class OutputFiles:
    """A folder with a picture or a page for each answer: `photo_attention.png` for `somewhere/photo.jpg`.

    No two inputs get the same file, even if the file system ignores case. No input is overwritten, and a link in the
    folder is replaced, never followed.

    Args:
        folder: created if it does not exist.
        ending: `".png"` for pictures, `".html"` for pages.
        inputs: the names of all inputs.
    """

    def __init__(self, folder: str, ending: str, inputs: Sequence[str]):
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{folder} is a file, not a folder to write to")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ending = ending
        self._taken = {str(Path(name).absolute()).casefold() for name in inputs}

    def write(self, answer: Any) -> None:
        """Write the picture or the page of an answer to a new file, then rename it."""
        path = self.path_of(answer.source)
        if path.is_dir() and not path.is_symlink():
            raise ValueError(f"{path} is a folder; the picture or page of {answer.source} needs this name")
        with tempfile.TemporaryDirectory(prefix=".", dir=self.folder) as private:
            new = Path(private) / path.name
            (answer.result.to_html if self.ending == ".html" else answer.result.plot)(str(new))
            os.replace(new, path)

    def path_of(self, name: str) -> Path:
        """Return the path for an input, a new one at each call, of ASCII letters, digits and dashes."""
        stem = "stdin" if name == STANDARD_INPUT else Path(name).stem
        stem = re.sub(r"[^\w-]+", "_", stem, flags=re.ASCII).strip("_")[:_LONGEST_STEM] or "input"
        number = 1
        while True:
            path = self.folder / f"{stem}_attention{'' if number == 1 else f'_{number}'}{self.ending}"
            key = str(path.absolute()).casefold()
            if key not in self._taken:
                self._taken.add(key)
                return path
            number += 1
