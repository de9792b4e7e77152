"""Writes down what is said in each recording and, where asked to, when."""

import argparse
import sys
from collections.abc import Iterable
from typing import Any

from attention_apps.cli.answers import AnswerCommand


def _add_options(parser: argparse.ArgumentParser) -> None:
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--timestamps", action="store_true", help="a line for each word: its begin and end in seconds, confidence, word"
    )
    shown.add_argument("--srt", action="store_true", help="subtitles of one recording, in the SubRip format")
    parser.add_argument("--ctc-weight", type=float, metavar="W", help="CTC's part in the search, from 0 to below 1")
    parser.add_argument(
        "--min-confidence", type=float, metavar="P", help="less sure than this, from 0 to 1, is an empty text"
    )


def _lines(transcript: Any, options: argparse.Namespace) -> Iterable[str] | None:
    if options.srt:
        return transcript.to_srt().splitlines()
    if options.timestamps:
        return [f"{word.start:.2f} {word.end:.2f} {word.confidence:.2f} {word.word}" for word in transcript.words]
    return None


COMMAND = AnswerCommand(
    task="speech_recognition",
    method="transcripts",
    metavar="RECORDING",
    examples=(
        "attention-apps transcribe call.wav",
        "attention-apps transcribe call.wav --timestamps",
        "attention-apps transcribe talk.mp3 --srt > talk.srt",
        "attention-apps transcribe recordings/*.flac --json > transcripts.jsonl",
        "attention-apps transcribe call.wav --plot pictures",
        "attention-apps transcribe - < call.wav",
    ),
    add_options=_add_options,
    decoding=lambda options: {"ctc_weight": options.ctc_weight, "min_confidence": options.min_confidence},
    extra=lambda transcript: {
        "words": [word._asdict() for word in transcript.words],
        "confidence": transcript.confidence,
        "seconds": transcript.seconds,
    },
    lines=_lines,
    # Several recordings, told elsewhere than on the terminal, have a bar of their own.
    arguments=lambda options: {"quiet": options.quiet or (len(options.inputs) > 1 and not sys.stdout.isatty())},
)
add_arguments = COMMAND.add_arguments


def run(options: argparse.Namespace) -> int:
    if options.srt and (len(options.inputs) > 1 or options.json):
        raise ValueError("`--srt` is for one recording, without `--json`.")
    return COMMAND.run(options)
