"""Writes each text in one line, or in several, and shows which words it read for each word it wrote."""

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attention_apps.cli.predict import STANDARD_INPUT, PredictCommand, read_standard_input


class TextCommand(PredictCommand):
    """A command whose inputs are texts."""

    metavar = "TEXT"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--max-words", type=int, metavar="N", help="the most words of a line")
        parser.add_argument("--min-words", type=int, metavar="N", help="the fewest words of a line")
        parser.add_argument(
            "--sentences", type=int, metavar="N", help="read N passages of a text, and write a line for each"
        )
        parser.add_argument(
            "--lines", action="store_true", help="every line of a file is a text; a line of JSON for each"
        )

    def option_values(self, options: argparse.Namespace) -> Mapping[str, Any]:
        return {"max_words": options.max_words, "min_words": options.min_words, "sentences": options.sentences}

    def names(self, options: argparse.Namespace) -> Iterator[str]:
        """The inputs, or the lines of the inputs."""
        for name in options.inputs:
            try:
                yield from _lines(name) if options.lines else (name,)
            except (ValueError, OSError):
                yield name  # to be read as a whole, which fails for this input alone

    def read(self, name: str) -> bytes:
        """The bytes of a text; invalid UTF-8 is replaced later."""
        if isinstance(name, _Line):
            return name.contents
        return read_standard_input() if name == STANDARD_INPUT else Path(name).read_bytes()

    def entry(self, result: Any) -> Mapping[str, Any]:
        return {
            "tokens": result.tokens,
            "copied": result.copied,
            "passages": result.passages,
            "read_whole": result.was_read_whole,
        }

    def note(self, result: Any) -> str | None:
        if result.was_read_whole:
            return super().note(result)
        read = sum(end - start for start, end in result.passages)
        total = len(result.source_tokens)
        return f"{read:,} of {total:,} words and marks were read; --sentences N reads more passages"

    def run(self, options: argparse.Namespace) -> int:
        options.json = options.json or options.lines
        return super().run(options)


class SummarizeCommand(TextCommand):
    task = "text_summarization"
    other_tasks = ("sentence_compression",)
    examples = (
        "attention-apps summarize article.txt",
        "attention-apps summarize article.txt --max-words 15 --html pages",
        "attention-apps summarize report.txt --sentences 5",
        "attention-apps summarize --lines documents.txt > summaries.jsonl",
        "attention-apps summarize - < article.txt",
    )


class _Line(str):
    """The name of a line, `article.txt:3`, with its bytes."""

    contents: bytes


def _lines(name: str) -> Iterable[_Line]:
    with contextlib.nullcontext(sys.stdin.buffer) if name == STANDARD_INPUT else open(name, "rb") as file:
        for number, contents in enumerate(file, 1):
            line = _Line(f"{name}:{number}")
            line.contents = contents
            yield line


COMMAND = SummarizeCommand()
add_arguments = COMMAND.add_arguments
run = COMMAND.run
