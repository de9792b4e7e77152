"""Writes a preset as a TensorFlow SavedModel that takes raw input and answers with text."""

import argparse
import json

from attention_apps.applications.tasks import load
from attention_apps.cli.arguments import add_search_arguments, search_options
from attention_apps.cli.quiet import import_tensorflow_quietly
from attention_apps.terminal import print_line

_EXAMPLES = """examples:
  attention-apps export runs/mine/preset models/captioner
  attention-apps export show_attend_tell_flickr8k models/captioner --beam-size 3 --num-best 3
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.add_argument("preset", metavar="PRESET", help="name of a preset, or the folder of a trained model")
    parser.add_argument("folder", metavar="FOLDER", help="named as the model is to be called; holds its versions")
    add_search_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")


def run(options: argparse.Namespace) -> int:
    import_tensorflow_quietly(options.quiet)
    application = load(options.preset)
    version = application.export(options.folder, **search_options(options))
    size = sum(path.stat().st_size for path in version.rglob("*") if path.is_file())
    if options.json:
        print(json.dumps({"folder": str(version), "task": application.task, "bytes": size}))
    elif not options.quiet:
        print_line(f"{version}: {size / 1e6:.1f} MB; its inputs and outputs are in {version / 'README.md'}")
    return 0
