"""The commands `caption`, `transcribe`, `summarize`, `compress` and `translate`."""

import argparse
import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar

from attention_apps.applications.tasks import application_class
from attention_apps.batch.inputs import Item
from attention_apps.cli.predict import MAX_INPUT, STANDARD_INPUT, PredictCommand, read_bounded

_CHECKED_BYTES = 1 << 12
_MAGIC = (b"%PDF-", b"%!PS", b"{\\rtf", b"PK\x03\x04", b"\x89PNG", b"\xff\xd8\xff", b"GIF8")
# The replacement of a byte that is not UTF-8, and control characters.
_NO_TEXT = re.compile("[\ufffd\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


class CaptionCommand(PredictCommand):
    """Write a caption for each photo, and show where the model looked for each word."""

    task = "image_captioning"
    metavar = "PHOTO"
    suffixes = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".avif", ".heic", ".heif")
    examples = (
        "attention-apps caption photo.jpg",
        "attention-apps caption photos/ --json > captions.jsonl",
        "attention-apps caption photo.jpg --num-best 3 --html pages",
        "attention-apps caption photo.jpg --preset runs/mine/preset --plot pictures",
        "attention-apps caption - < photo.jpg",
    )
    columns: ClassVar = {"tokens": attrgetter("tokens")}


class TranscribeCommand(PredictCommand):
    """Write down what is said in each recording and, if asked, when."""

    task = "speech_recognition"
    metavar = "RECORDING"
    suffixes = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".au")
    examples = (
        "attention-apps transcribe call.wav",
        "attention-apps transcribe call.wav --timestamps",
        "attention-apps transcribe talk.mp3 --srt > talk.srt",
        "attention-apps transcribe talk.m4a --vtt > talk.vtt",
        "attention-apps transcribe recordings/ --json > transcripts.jsonl",
        "attention-apps transcribe call.wav --plot pictures",
        "attention-apps transcribe - < call.wav",
    )
    output_options = ("ctc_weight", "min_confidence")
    columns: ClassVar = {
        "words": lambda result: [word._asdict() for word in result.words],
        "seconds": attrgetter("seconds"),
    }
    has_long_items = True

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        shown = parser.add_mutually_exclusive_group()
        shown.add_argument(
            "--timestamps",
            action="store_true",
            help="a line for each word: start and end in seconds, confidence, word",
        )
        shown.add_argument("--srt", action="store_true", help="subtitles of one recording, in the SubRip format")
        shown.add_argument("--vtt", action="store_true", help="subtitles of one recording, in the WebVTT format")
        parser.add_argument("--ctc-weight", type=float, metavar="W", help="CTC's part in the search, from 0 to below 1")
        parser.add_argument(
            "--min-confidence", type=float, metavar="P", help="a text with less confidence, from 0 to 1, is left empty"
        )

    def lines(self, result: Any, options: argparse.Namespace) -> Iterable[str]:
        if options.srt:
            return result.to_srt().splitlines()
        if options.vtt:
            return result.to_vtt().splitlines()
        if options.timestamps:
            return [f"{word.start:.2f} {word.end:.2f} {word.confidence:.2f} {word.word}" for word in result.words]
        return super().lines(result, options)

    def inputs(self, options: argparse.Namespace) -> list[str]:
        found = super().inputs(options)
        if (options.srt or options.vtt) and (len(found) > 1 or options.json):
            raise ValueError(f"`--{'srt' if options.srt else 'vtt'}` is for one recording, without `--json`.")
        return found


class TextCommand(PredictCommand):
    """A command whose inputs are texts."""

    metavar = "TEXT"
    suffixes = (".txt", ".text", ".md")

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--text", action="append", default=[], metavar="STRING", help="a text itself; may be given several times"
        )
        parser.add_argument(
            "--lines", action="store_true", help="every line of a file is a text; a line of JSON for each"
        )

    def inputs(self, options: argparse.Namespace) -> list[str]:
        """Return the inputs; texts of the command line come after the files. `--lines` implies JSON."""
        options.json = options.json or options.lines
        given = [
            Item("text" if number == 1 else f"text_{number}", text.encode("utf-8", "surrogateescape"))
            for number, text in enumerate(options.text, 1)
        ]
        return [*(super().inputs(options) if options.inputs or not given else ()), *given]

    def names(self, options: argparse.Namespace) -> Iterator[str]:
        """Yield the inputs, or the lines of the inputs."""
        for name in options.inputs:
            try:
                yield from _lines(name) if options.lines and not isinstance(name, Item) else (name,)
            except (ValueError, OSError):
                yield name  # to be read as a whole, which fails for this input alone

    def read(self, name: str) -> bytes:
        """Return the bytes of a text. A few invalid bytes are replaced later."""
        contents = super().read(name)
        if isinstance(contents, str):
            with open(contents, "rb") as file:
                contents = read_bounded(file, contents)
        if not isinstance(name, Item) or name.contents is None:
            check_text(name, contents)
        return contents


class TranslateCommand(TextCommand):
    """Translate each text sentence by sentence, and show which words the model read for each word it wrote."""

    task = "machine_translation"
    examples = (
        "attention-apps translate descriptions.txt",
        "attention-apps translate descriptions.txt --html pages --plot pictures",
        "attention-apps translate --text 'Two dogs are playing in the snow.'",
        "attention-apps translate --lines sentences.txt > translations.jsonl",
        "attention-apps translate - < letter.txt",
    )
    columns: ClassVar = {"tokens": attrgetter("tokens"), "source_tokens": attrgetter("source_tokens")}


class CompressCommand(TextCommand):
    """Shorten each sentence of a text by deleting words; the others stay as they were typed."""

    task = "sentence_compression"
    examples: tuple[str, ...] = (
        "attention-apps compress article.txt",
        "attention-apps compress article.txt --max-words 12",
        "attention-apps compress --lines sentences.txt > compressions.jsonl",
        "attention-apps compress - < article.txt",
    )
    output_options = ("max_words", "min_words", "sentences")
    columns: ClassVar = {
        "tokens": attrgetter("tokens"),
        "copied": attrgetter("copied"),
        "passages": attrgetter("passages"),
        "read_whole": attrgetter("was_read_whole"),
    }

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--max-words", type=int, metavar="N", help="the most words of a line")
        parser.add_argument("--min-words", type=int, metavar="N", help="the fewest words of a line")
        parser.add_argument(
            "--sentences", type=int, metavar="N", help="write N lines, each from one sentence, from all over a text"
        )
        super().add_options(parser)

    def note(self, result: Any) -> str | None:
        if result.was_read_whole or len(result.lines) > 1:
            return super().note(result)
        read = sum(end - start for start, end in result.passages)
        total = len(result.source_tokens)
        return f"{read:,} of {total:,} words and marks were read; --sentences N reads from all over the text"


class SummarizeCommand(CompressCommand):
    """Write each text in one line, or in several, and show which words the model read for each word it wrote.

    The style `headline` writes a new sentence. `compress` deletes words of each sentence and changes no other. `auto`
    compresses a text of one sentence, and writes a headline for a longer text.
    """

    task = "text_summarization"
    other_tasks = ("sentence_compression",)
    examples = (
        "attention-apps summarize article.txt",
        "attention-apps summarize article.txt --max-words 15 --html pages",
        "attention-apps summarize report.txt --sentences 5",
        "attention-apps summarize --lines documents.txt > summaries.jsonl",
        "attention-apps summarize --text 'The council voted to close the bridge. Engineers had found rust.'",
        "attention-apps summarize - < article.txt",
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--style",
            choices=("headline", "compress", "auto"),
            help="a new line (the default), each sentence with words deleted, or the latter for a single sentence only",
        )

    def load(self, options: argparse.Namespace) -> Any:
        if options.style is None:
            return super().load(options)
        if options.preset is not None:
            raise ValueError("`--style` and `--preset` both choose a model; give one of them.")
        if options.style == "auto":
            return _ByLength()
        return application_class("sentence_compression" if options.style == "compress" else self.task).from_preset()


class _ByLength:
    """Compresses texts of one sentence, and writes headlines for longer ones."""

    def run(self, items: Iterable[bytes], quiet: bool, **options: Any) -> Iterator[Any]:
        from attention_apps.preprocessing.sentences import sentence_starts, tokenize_sentence

        def task_of(text: bytes) -> str:
            starts = sentence_starts(tokenize_sentence([text])).flat_values.numpy()
            return "text_summarization" if starts.sum() > 1 else "sentence_compression"

        applications: dict[str, Any] = {}
        for task, texts in groupby(items, key=task_of):
            if task not in applications:
                applications[task] = application_class(task).from_preset()
            yield from applications[task].run(texts, quiet=quiet, **options)


def _lines(name: str) -> Iterable[Item]:
    with contextlib.nullcontext(sys.stdin.buffer) if name == STANDARD_INPUT else open(name, "rb") as file:
        for number, contents in enumerate(iter(lambda: file.readline(MAX_INPUT), b""), 1):
            if number == 1:
                check_text(name, contents)
            yield Item(f"{name}:{number}", contents)


def check_text(name: str, contents: bytes) -> None:
    """Reject pictures, PDF files, archives, programs and other files that are not UTF-8 text."""
    start = contents[:_CHECKED_BYTES]
    wrong = len(_NO_TEXT.findall(start.decode("utf-8", "replace")))
    if start.startswith(_MAGIC) or b"\0" in start or wrong > 0.3 * len(start):
        shown = "standard input" if name == STANDARD_INPUT else name
        raise ValueError(f"{shown} is not a text file. Give plain text in UTF-8.")
