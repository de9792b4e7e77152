"""How large the code is, and how many files an input passes on its way to an answer.

    python benchmarks/code_size.py [FOLDER...] [--json]
    python benchmarks/code_size.py --trace [PRESET...] [--photos FILE] [--recordings FILE] [--texts FILE] [--list]

The first form counts, for each package below the folders (by default attention_apps), the files, lines and functions,
and the lines of function bodies without signature and docstring. The second form asks presets and counts the files and
functions of attention_apps that are entered; code that runs on import does not count.
"""

import argparse
import ast
import inspect
import json
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from presets import VERBS, add_input_arguments, find_verb, load, read_inputs, set_threads, verb_of

PACKAGE = Path(__file__).parents[1] / "attention_apps"
TRACED_PRESETS = (
    "show_attend_tell_coco",
    "moonshine_tiny_english",
    "pointer_generator_headlines",
    "sentence_compression_google",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="FOLDER|PRESET", help="folders to count, or presets to trace")
    parser.add_argument("--trace", action="store_true", help="count the files from input to answer")
    parser.add_argument("--list", action="store_true", help="also name the files of each first answer")
    add_input_arguments(parser)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.trace:
        set_threads(1)
        figures = {}
        for preset in options.names or TRACED_PRESETS:
            inputs = {kind: read_inputs(kind, getattr(options, kind))[0] for kind in set(VERBS.values())}
            figures[preset] = trace_preset(preset, inputs)
        print(json.dumps(figures)) if options.json else print_traces(figures, options.list)
    else:
        sizes = [size for folder in options.names or [PACKAGE] for size in measure_packages(Path(folder))]
        print(json.dumps([size.to_dict() for size in sizes])) if options.json else print_sizes(sizes)


# Sizes


@dataclass
class Size:
    """Files and lines of a package, and the lines of each function's body."""

    name: str
    files: int = 0
    lines: int = 0
    bodies: list[int] = field(default_factory=list)

    def add(self, source: str) -> None:
        self.files += 1
        self.lines += len(source.splitlines())
        self.bodies += body_lines(source)

    def to_dict(self) -> dict[str, Any]:
        bodies = self.bodies or [0]
        deciles = statistics.quantiles(bodies, n=10, method="inclusive") if len(bodies) > 1 else bodies
        return {
            "package": self.name,
            "files": self.files,
            "lines": self.lines,
            "lines a file": self.lines / max(self.files, 1),
            "functions": len(self.bodies),
            "median": statistics.median(bodies),
            "90th percentile": deciles[-1],
            "longest": max(bodies),
        }


def measure_packages(folder: Path) -> list[Size]:
    """Measure each package directly below a folder, the modules beside them, and all together."""
    sizes: dict[str, Size] = {}
    total = Size(f"{folder.name}, all")
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).parts
        name = parts[0] if len(parts) > 1 else f"{folder.name}/*.py"
        source = path.read_text(encoding="utf-8")
        for size in (sizes.setdefault(name, Size(name)), total):
            size.add(source)
    if not total.files:
        raise ValueError(f"`folder` must contain Python files. Received: folder={str(folder)!r}")
    return [*(sizes[name] for name in sorted(sizes)), total]


def body_lines(source: str) -> Iterator[int]:
    """Yield the lines of each function's body, methods and nested functions included, declarations not.

    A declaration has no body but a docstring or an ellipsis: abstract methods, those of protocols, overloads.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[ast.get_docstring(node, clean=False) is not None :]
            if body and ast.unparse(body[0]) != "...":
                yield body[-1].end_lineno - body[0].lineno + 1


def print_sizes(sizes: list[Size]) -> None:
    rows = [size.to_dict() for size in sizes]
    width = max(len(row["package"]) for row in rows)
    columns = [column for column in rows[0] if column != "package"]
    print(" " * width, *columns, sep="  ")
    for row in rows:
        print(f"{row['package']:{width}}", *(f"{row[column]:{len(column)}.0f}" for column in columns), sep="  ")


# Files from input to answer


@dataclass
class Trace:
    """The files entered, in order, the functions, and how often the path went from one file to another."""

    files: list[str] = field(default_factory=list)
    functions: set[tuple[str, str, int]] = field(default_factory=set)
    crossings: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "files": len(self.files),
            "functions": len(self.functions),
            "crossings": self.crossings,
            "names": self.files,
        }


def trace_files(function: Callable[[], Any], package: Path = PACKAGE) -> Trace:
    """Call a function and note which files of a package it enters. Code that runs on import does not count."""
    trace, root, last = Trace(), f"{package.resolve()}/", [""]

    def note(frame, event, argument):
        code = frame.f_code
        # Bodies of modules and classes have no local variables that are optimized.
        if event != "call" or not code.co_filename.startswith(root) or not code.co_flags & inspect.CO_OPTIMIZED:
            return
        name = code.co_filename.removeprefix(root)
        if name not in trace.files:
            trace.files.append(name)
        trace.functions.add((name, code.co_qualname, code.co_firstlineno))
        trace.crossings += name != last[0]
        last[0] = name

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return trace


def trace_preset(preset: str, inputs: dict[str, bytes]) -> dict[str, dict[str, Any]]:
    """Trace loading, the first answer (which builds the graphs), the next one, its plot, and the export."""
    loaded, results = [], []
    traces = {"load": trace_files(lambda: loaded.append(load(preset)))}
    application = loaded[0]
    answer, item = verb_of(application), inputs[VERBS[find_verb(application)]]
    traces["first answer"] = trace_files(lambda: results.append(answer(item)))
    traces["next answer"] = trace_files(lambda: answer(item))
    with tempfile.TemporaryDirectory() as folder:
        traces["plot"] = trace_files(lambda: results[0].plot(Path(folder) / "plot.png"))
        traces["export"] = trace_files(lambda: application.export(Path(folder) / "model"))
    return {step: trace.to_dict() for step, trace in traces.items()}


def print_traces(figures: dict[str, dict[str, dict[str, Any]]], with_names: bool) -> None:
    width = max(map(len, figures))
    steps = list(next(iter(figures.values())))
    print(f"{'files / functions':{width}}", *(f"{step:>12}" for step in steps), sep="  ")
    for preset, traces in figures.items():
        cells = (f"{traces[step]['files']} / {traces[step]['functions']}" for step in steps)
        print(f"{preset:{width}}", *(f"{cell:>12}" for cell in cells), sep="  ")
    if with_names:
        for preset, traces in figures.items():
            print(f"\n{preset}, first answer:", *traces["first answer"]["names"], sep="\n  ")


if __name__ == "__main__":
    main()
