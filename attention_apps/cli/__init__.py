"""The command `attention-apps`. Each subcommand imports what it needs when it runs, so that help is there at once."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from attention_apps._version import __version__
from attention_apps.terminal import print_line

# Name of each subcommand, which is that of its module with a dash for the underscore, and its line of help.
COMMANDS = {
    "caption": "write captions for photos",
    "transcribe": "write down what is said in recordings",
    "summarize": "write texts in one line",
    "compress": "shorten sentences by deleting words",
    "translate": "translate texts",
    "batch": "do one of these for very many inputs, on several machines",
    "train": "train or fine-tune on your own data",
    "check-data": "list what is wrong with a data set",
    "evaluate": "score a preset on a data set",
    "export": "write a preset as a TensorFlow SavedModel",
    "serve": "serve models over REST, for trying things out",
    "presets": "list the presets that came with the package",
    "demo": "try the presets on a page in the browser, or in the terminal; no network needed",
    "completion": "print a script for completion in the shell",
}

_EPILOG = """examples:
  attention-apps demo
  attention-apps caption photo.jpg --html pages
  attention-apps transcribe call.wav --timestamps
  attention-apps summarize article.txt --max-words 15
  attention-apps translate letter.txt
  attention-apps check-data image_captioning --data photos.csv
  attention-apps train image_captioning --data photos.csv --validation held_out.csv --output runs/mine
  attention-apps evaluate runs/mine/preset held_out.csv
  attention-apps export runs/mine/preset models/captioner
  attention-apps serve models/captioner

exit codes: 0 all right, 1 some of the inputs failed, 2 wrong usage
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 0 all right, 1 something failed, 2 wrong usage."""
    parser = make_parser()
    if "_ARGCOMPLETE" in os.environ:  # the shell asks for completions
        import argcomplete

        argcomplete.autocomplete(parser)
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(arguments)
    options.arguments = arguments
    try:
        return options.run(options)
    except BrokenPipeError:
        # Whoever read our output has gone; the interpreter, which flushes it once more at its end, must not stumble.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError) as error:
        first, *others = str(error).split("\n")
        print_line(f"attention-apps: {first}", sys.stderr)
        for line in others:  # indented, so that no name of a file can fake a message
            print_line(f"  {line}", sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("attention-apps: interrupted", file=sys.stderr)
        return 130


def make_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(
        prog="attention-apps",
        description="Attention for Keras 3: captions for photos, words from speech, headlines from text.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"attention-apps {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        module = importlib.import_module(f"attention_apps.cli.{name.replace('-', '_')}")
        command = commands.add_parser(name, help=summary, description=module.__doc__)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser
