"""Says each text in one line, or in several, and shows which words it read for each word it wrote."""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attention_apps.cli.answers import STANDARD_INPUT, AnswerCommand, read_standard_input


class _Line(str):
    """The name of a line, `article.txt:3`, with what it holds."""

    contents: bytes


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-words", type=int, metavar="N", help="the most words of a line of the summary")
    parser.add_argument("--min-words", type=int, metavar="N", help="the fewest words of a line of the summary")
    parser.add_argument(
        "--sentences", type=int, metavar="N", help="summarize N passages of a text, a line each, in their order"
    )
    parser.add_argument("--lines", action="store_true", help="every line of a file is a text; a line of JSON for each")


def _names(options: argparse.Namespace) -> Iterator[str]:
    """The inputs, or the lines of the inputs."""
    for name in options.inputs:
        try:
            yield from _lines(name) if options.lines else (name,)
        except (ValueError, OSError):
            yield name  # to be read as a whole, which fails for this input alone


def _lines(name: str) -> Iterator[_Line]:
    with contextlib.nullcontext(sys.stdin.buffer) if name == STANDARD_INPUT else open(name, "rb") as file:
        for number, contents in enumerate(file, 1):
            line = _Line(f"{name}:{number}")
            line.contents = contents
            yield line


def _read(name: str) -> bytes:
    """The bytes of a text; those that are no UTF-8 are replaced when it is summarized."""
    if isinstance(name, _Line):
        return name.contents
    return read_standard_input() if name == STANDARD_INPUT else Path(name).read_bytes()


def _note(summary: Any) -> str | None:
    """What was read of a text that is longer than the model reads."""
    if summary.was_read_whole:
        return None
    read = sum(end - start for start, end in summary.passages)
    return f"{read:,} of {len(summary.source_tokens):,} words and marks were read; --sentences N reads more passages"


COMMAND = AnswerCommand(
    task="text_summarization",
    method="summaries",
    metavar="TEXT",
    examples=(
        "attention-apps summarize article.txt",
        "attention-apps summarize article.txt --max-words 15 --html pages",
        "attention-apps summarize report.txt --sentences 5",
        "attention-apps summarize sentence.txt --preset sentence_compression_google",
        "attention-apps summarize --lines documents.txt > summaries.jsonl",
        "attention-apps summarize - < article.txt",
    ),
    read=_read,
    add_options=_add_options,
    decoding=lambda options: {
        "max_words": options.max_words,
        "min_words": options.min_words,
        "sentences": options.sentences,
    },
    extra=lambda summary: {
        "tokens": summary.tokens,
        "copied": summary.copied,
        "passages": summary.passages,
        "read_whole": summary.was_read_whole,
    },
    names=_names,
    note=_note,
)
add_arguments = COMMAND.add_arguments


def run(options: argparse.Namespace) -> int:
    options.json = options.json or options.lines
    return COMMAND.run(options)
