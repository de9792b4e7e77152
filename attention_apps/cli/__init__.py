"""The command `attention-apps`. Each subcommand imports what it needs when it runs, so that help is there at once."""

import argparse
import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from attention_apps._version import __version__
from attention_apps.terminal import print_line, printable

# The class of each command, below `attention_apps.cli`, and its line of help. A command has `examples`,
# `add_arguments(parser)` and `run(options)`, which returns the exit code. The docstring of its class describes it.
COMMANDS = {
    "caption": ("predict_commands.CaptionCommand", "write captions for photos"),
    "transcribe": ("predict_commands.TranscribeCommand", "write down what is said in recordings"),
    "summarize": ("predict_commands.SummarizeCommand", "write texts in one line"),
    "compress": ("predict_commands.CompressCommand", "shorten sentences by deleting words"),
    "translate": ("predict_commands.TranslateCommand", "translate texts"),
    "batch": ("batch.BatchCommand", "do one of these for very many inputs, on several machines"),
    "train": ("train.TrainCommand", "train or fine-tune on your own data"),
    "check-data": ("train.CheckDataCommand", "list what is wrong with a data set"),
    "evaluate": ("train.EvaluateCommand", "score a preset on a data set"),
    "export": ("serving_commands.ExportCommand", "write a preset as a TensorFlow SavedModel"),
    "serve": ("serving_commands.ServeCommand", "serve models over REST, for trying things out"),
    "presets": ("serving_commands.PresetsCommand", "list the presets that came with the package"),
    "demo": (
        "demo.DemoCommand",
        "try the presets on a page in the browser, or in the terminal; no network needed",
    ),
    "completion": ("CompletionCommand", "print a script for completion in the shell"),
}

_EPILOG = """examples:
  attention-apps demo
  attention-apps caption photo.jpg --html pages
  attention-apps transcribe call.wav --timestamps
  attention-apps summarize article.txt --max-words 15
  attention-apps translate descriptions.txt
  attention-apps check-data image_captioning --data photos.csv
  attention-apps train image_captioning --data photos.csv --validation held_out.csv --output runs/mine
  attention-apps evaluate runs/mine/preset held_out.csv
  attention-apps export runs/mine/preset models/captioner
  attention-apps serve models/captioner

exit codes: 0 all right, 1 some of the inputs failed, 2 wrong usage
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 all right, 1 something failed, 2 wrong usage."""
    parser = make_parser()
    warnings.formatwarning = lambda message, *_, **__: f"attention-apps: {printable(str(message))}\n"
    if "_ARGCOMPLETE" in os.environ:  # the shell asks for completions
        import argcomplete

        argcomplete.autocomplete(parser)
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(arguments)
    options.arguments = arguments
    try:
        return options.run(options)
    except BrokenPipeError:
        # The reader of our output is gone. The interpreter flushes it once more at exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError) as error:
        first, *others = str(error).split("\n")
        print_line(f"attention-apps: {first}", sys.stderr)
        for line in others:  # indented, so that no file name can fake a message
            print_line(f"  {line}", sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("attention-apps: interrupted", file=sys.stderr)
        return 130


class _Parser(argparse.ArgumentParser):
    """A parser that escapes control characters of arguments, which may be names of files."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands and their options."""
    parser = _Parser(
        prog="attention-apps",
        description="Attention for Keras 3: captions for photos, words from speech, headlines from text.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"attention-apps {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (path, summary) in COMMANDS.items():
        module, _, class_name = f"attention_apps.cli.{path}".rpartition(".")
        command = getattr(importlib.import_module(module), class_name)()
        command_parser = commands.add_parser(
            name,
            help=summary,
            description=inspect.getdoc(command),
            epilog="\n".join(["examples:", *(f"  {line}" for line in command.examples)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(command_parser)
        command_parser.set_defaults(run=command.run)
    return parser


class CompletionCommand:
    """Print a script with which the shell completes commands, options and files."""

    examples = (
        'eval "$(attention-apps completion bash)"        # in ~/.bashrc',
        'eval "$(attention-apps completion zsh)"         # in ~/.zshrc',
        "attention-apps completion fish | source         # in ~/.config/fish/config.fish",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")

    def run(self, options: argparse.Namespace) -> int:
        import argcomplete

        print(argcomplete.shellcode(["attention-apps"], shell=options.shell))
        return 0
