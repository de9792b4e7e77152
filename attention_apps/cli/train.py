"""Trains a model on your own data; the same command resumes after an interruption."""

import argparse
import json
import shlex
import sys

from attention_apps.cli.arguments import add_data_arguments, make_application, parse_columns
from attention_apps.cli.quiet import import_tensorflow_quietly
from attention_apps.terminal import print_line

_EXAMPLES = """examples:
  attention-apps train image_captioning --data photos.csv --validation held_out.csv --output runs/mine
  attention-apps train text_summarization --data news.jsonl --column summary=headline --output runs/news
  attention-apps train speech_recognition --preset listen_attend_spell_an4 --data calls.csv --output runs/calls
  attention-apps train machine_translation --data pairs.tsv --output runs/pairs
  attention-apps train image_captioning --data photos.csv --output runs/short --set training.max_minutes=10
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    add_data_arguments(parser)
    parser.add_argument("--output", required=True, metavar="FOLDER", help="checkpoints, logs, and `preset/` at the end")
    parser.add_argument(
        "--cache", metavar="FOLDER", help="folder for what is computed once for each source (default: in --output)"
    )
    parser.add_argument("--restart", action="store_true", help="start over where the folder holds a run")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    from dataclasses import asdict
    from pathlib import Path

    import_tensorflow_quietly(options.quiet)
    from attention_apps.training import TrainingInterrupted, find_strategy, is_chief

    columns = parse_columns(options.column)
    output = Path(options.output)
    strategy = find_strategy()
    with strategy.scope():
        application = make_application(options)
        try:
            histories = application.fit(
                options.data,
                validation=options.validation,
                output=output,
                columns=columns,
                cache=options.cache,
                restart=options.restart,
                quiet=options.quiet,
            )
        except TrainingInterrupted as interruption:
            command = [argument for argument in options.arguments if argument != "--restart"]
            print_line(str(interruption), sys.stderr)
            print_line(f"To resume: {shlex.join(['attention-apps', *command])}", sys.stderr)
            return 128 + interruption.signal_number
        if not is_chief(strategy):
            return 0
        application.save(output / "preset")
    if options.json:
        print(json.dumps([asdict(history) for history in histories]))
    elif not options.quiet:
        print_line(f"saved in {output / 'preset'}")
    return 0
