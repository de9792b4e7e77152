"""Writes down what is said in each recording and, if asked, when."""

import argparse
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from attention_apps.cli.predict import PredictCommand


class TranscribeCommand(PredictCommand):
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

    def option_values(self, options: argparse.Namespace) -> Mapping[str, Any]:
        return {"ctc_weight": options.ctc_weight, "min_confidence": options.min_confidence}

    def entry(self, result: Any) -> Mapping[str, Any]:
        return {"words": [word._asdict() for word in result.words], "seconds": result.seconds}

    def lines(self, result: Any, options: argparse.Namespace) -> Iterable[str]:
        if options.srt:
            return result.to_srt().splitlines()
        if options.vtt:
            return result.to_vtt().splitlines()
        if options.timestamps:
            return [f"{word.start:.2f} {word.end:.2f} {word.confidence:.2f} {word.word}" for word in result.words]
        return super().lines(result, options)

    def is_quiet(self, options: argparse.Namespace) -> bool:
        """Several recordings whose texts go elsewhere than to the terminal have one bar for all."""
        return options.quiet or (len(options.inputs) > 1 and not sys.stdout.isatty())

    def inputs(self, options: argparse.Namespace) -> list[str]:
        found = super().inputs(options)
        if (options.srt or options.vtt) and (len(found) > 1 or options.json):
            raise ValueError(f"`--{'srt' if options.srt else 'vtt'}` is for one recording, without `--json`.")
        return found


COMMAND = TranscribeCommand()
add_arguments = COMMAND.add_arguments
run = COMMAND.run
