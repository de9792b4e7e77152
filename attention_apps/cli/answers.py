"""What `caption`, `transcribe` and `summarize` share: inputs in, a line of text or JSON out for each, in order."""

import argparse
import json
import math
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from attention_apps.cli.output_files import OutputFiles
from attention_apps.cli.quiet import import_tensorflow_quietly, only_python_on_stderr
from attention_apps.cli.tasks import add_search_arguments, application_class, load_preset, search_options

STANDARD_INPUT = "-"
_MAX_STANDARD_INPUT = 1 << 30
_CONTROL_CODE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Answer:
    """What became of an input: a result, or why there is none."""

    source: str
    result: Any = None
    error: str | None = None


def read_standard_input() -> bytes:
    """All of standard input, which must have an end."""
    contents = sys.stdin.buffer.read(_MAX_STANDARD_INPUT + 1)
    if len(contents) > _MAX_STANDARD_INPUT:
        raise ValueError(f"Standard input is too large: it has more than the limit of {_MAX_STANDARD_INPUT:,} bytes")
    return contents


def path_or_bytes(name: str) -> str | bytes:
    """An input as a source that is read later: the path itself, or the bytes of standard input."""
    return read_standard_input() if name == STANDARD_INPUT else name


@dataclass(frozen=True)
class AnswerCommand:
    """A command that writes a text for each of its inputs, however many they are.

    Args:
        task: one of `TASKS`.
        method: name of the application's method that takes sources and decoding options, and gives results one after
            the other, each with `text`, `score`, `alternatives`, `error`, `plot` and `to_html`.
        metavar: an input's name in the help.
        examples: lines at the end of the help.
        read: makes a source of an input; a `ValueError` or `OSError` is the failure of that input alone.
        add_options: adds options of the command's own to its parser.
        decoding: what those change in the decoding options, as fields and values; `None` leaves a field as it is.
        extra: further JSON keys and values of a result.
        names: what `read` is given, one name for each answer, where that is not one for each input.
        note: what the user should know of a result next to its text; told on stderr, or `None`.
        lines: what is printed of a result in place of its text, or `None`.
        arguments: further arguments of `method`, by name.
    """

    task: str
    method: str
    metavar: str
    examples: tuple[str, ...]
    read: Callable[[str], Any] = path_or_bytes
    add_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    decoding: Callable[[argparse.Namespace], Mapping[str, Any]] = lambda options: {}
    extra: Callable[[Any], Mapping[str, Any]] = lambda result: {}
    names: Callable[[argparse.Namespace], Iterable[str]] = lambda options: options.inputs
    note: Callable[[Any], str | None] = lambda result: None
    lines: Callable[[Any, argparse.Namespace], Iterable[str] | None] = lambda result, options: None
    arguments: Callable[[argparse.Namespace], Mapping[str, Any]] = lambda options: {}

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = "\n".join(["examples:", *(f"  {line}" for line in self.examples)])
        parser.add_argument("inputs", nargs="+", metavar=self.metavar, help="files; - is standard input")
        parser.add_argument("--preset", metavar="NAME|FOLDER", help="a trained model (default: the task's own)")
        add_search_arguments(parser)
        parser.add_argument("--plot", metavar="DIR", help="folder for pictures of where the model looked")
        parser.add_argument("--html", metavar="DIR", help="folder for pages of where the model looked")
        parser.add_argument("--json", action="store_true", help="a line of JSON for each input")
        parser.add_argument("--quiet", action="store_true", help="no progress bar")
        self.add_options(parser)

    def run(self, options: argparse.Namespace) -> int:
        names = options.inputs
        if names.count(STANDARD_INPUT) > 1:
            raise ValueError("`-` may be given once: standard input can be read once.")
        files = [
            OutputFiles(folder, ending, names)
            for folder, ending in ((options.plot, ".png"), (options.html, ".html"))
            if folder is not None
        ]
        import_tensorflow_quietly()
        application = load_preset(application_class(self.task), options.preset)
        decoding = search_options(application.config.decoding, options, self.decoding(options))
        answers = self._answers(application, self.names(options), decoding, **self.arguments(options))
        failures = 0
        with only_python_on_stderr(), closing(_with_progress(answers, len(names), options.quiet)) as shown:
            for answer in shown:
                failures += answer.error is not None
                self._tell(answer, options)
                if answer.error is None:
                    for one in files:
                        one.write(answer)
        return 1 if failures else 0

    def _answers(self, application: Any, names: Iterable[str], decoding: Any, **arguments: Any) -> Iterator[Answer]:
        """An answer for each input in its order; the application takes sources as it needs them."""
        waiting: deque[Answer] = deque()

        def sources() -> Iterator[Any]:
            for name in names:
                try:
                    source = self.read(name)
                except (ValueError, OSError) as error:
                    waiting.append(Answer(name, error=str(error)))
                else:
                    waiting.append(Answer(name))
                    yield source

        for result in getattr(application, self.method)(sources(), decoding, **arguments):
            while waiting[0].error is not None:
                yield waiting.popleft()
            yield replace(waiting.popleft(), result=result, error=result.error)
        yield from waiting

    def _tell(self, answer: Answer, options: argparse.Namespace) -> None:
        if options.json:
            _print(json.dumps(self._entry(answer)))
        elif answer.error is not None:
            is_named = answer.source in answer.error
            _print(f"attention-apps: {'' if is_named else f'{answer.source}: '}{answer.error}", sys.stderr)
        else:
            label = f"{answer.source}: " if len(options.inputs) > 1 else ""
            for line in self._lines(answer.result, options):
                _print(label + line)
            note = None if options.quiet else self.note(answer.result)
            if note is not None:
                _print(f"attention-apps: {answer.source}: {note}", sys.stderr)

    def _lines(self, result: Any, options: argparse.Namespace) -> Iterable[str]:
        lines = self.lines(result, options)
        if lines is not None:
            return lines
        return [f"{score:.3f} {text}" for text, score in result.alternatives] if options.n_best else [result.text]

    def _entry(self, answer: Answer) -> dict[str, Any]:
        if answer.error is not None:
            return {"source": answer.source, "text": None, "score": None, "alternatives": [], "error": answer.error}
        result = answer.result
        return {
            "source": answer.source,
            "text": result.text,
            "score": _finite(result.score),
            "alternatives": [{"text": text, "score": _finite(score)} for text, score in result.alternatives],
            **self.extra(result),
        }


def _with_progress(answers: Iterator[Answer], count: int, quiet: bool) -> Iterator[Answer]:
    """The answers, with a bar on a terminal that does not show the answers themselves."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    hidden = quiet or count == 1 or not console.is_terminal or sys.stdout.isatty()
    columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    # Redirected, answers would come out where the bar is; errors, which do, come out above it.
    with Progress(*columns, console=console, transient=True, disable=hidden, redirect_stdout=False) as progress:
        yield from progress.track(answers, total=count)


def _print(line: str, file: Any = None) -> None:
    """Prints what may hold letters that the terminal has not, or codes that it would obey, as names of files do."""
    file = sys.stdout if file is None else file
    encoding = getattr(file, "encoding", None) or "utf-8"
    line = _CONTROL_CODE.sub(lambda code: repr(code[0])[1:-1], line)
    print(line.encode(encoding, "backslashreplace").decode(encoding), file=file, flush=True)


def _finite(score: float) -> float | None:
    """The score, or `None` for an infinite one, which JSON has no word for."""
    return float(score) if math.isfinite(score) else None
