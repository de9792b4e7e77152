"""The commands `presets`, `export` and `serve`: trained models listed, as TensorFlow SavedModels, and over REST."""

import argparse
import ipaddress
import json
import math
import re
import shutil
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from attention_apps.applications.tasks import load
from attention_apps.cli.predict import add_search_arguments, search_options
from attention_apps.terminal import import_tensorflow_quietly, print_line

# A line of the card: "- License: ..." or "| License | ... |", in bold or not.
_CARD_LINE = r"^\W*{}\W*[:|]\W*?(\w.*?)[\s|]*$"
# What may end a sentence, and what a sentence costs at least.
_SENTENCE_END = re.compile("[.?!\n]|\u2026|\u3002|\uff1f|\uff01".encode())
_SENTENCE_BYTES = 256


class PresetsCommand:
    """List the presets that came with the package: what each is for and not for, its task, size, score and license."""

    examples = ("attention-apps presets", "attention-apps presets --json")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print the list as JSON")
        parser.add_argument("--quiet", action="store_true", help="as everywhere; there is nothing here but the list")

    def run(self, options: argparse.Namespace) -> int:
        from attention_apps.applications.preset import preset_names, presets_root

        presets = [describe(presets_root() / name) for name in preset_names()]
        if options.json:
            print(json.dumps(presets, ensure_ascii=False))
        else:
            for number, preset in enumerate(presets):
                if number:
                    print_line("")
                _print_preset(preset)
        return 0


def describe(folder: Path) -> dict[str, Any]:
    """Return the name, task and size of a preset, and what its card says."""
    from attention_apps.applications.preset import CARD, read_task

    card = (folder / CARD).read_text(encoding="utf-8") if (folder / CARD).is_file() else ""

    def find(word: str) -> str | None:
        match = re.search(_CARD_LINE.format(word), card, re.IGNORECASE | re.MULTILINE)
        return None if match is None else match[1]

    return {
        "name": folder.name,
        "task": read_task(folder),
        "for": find("for"),
        "not_for": find("not for"),
        "score": find("score"),
        "bytes": sum(path.stat().st_size for path in folder.iterdir()),
        "license": find("licen[cs]e"),
    }


def _print_preset(preset: dict[str, Any]) -> None:
    """Print a line with name, task and size, and a paragraph as wide as the terminal for each entry of the card."""
    width = max(shutil.get_terminal_size().columns, 40)
    for line in textwrap.wrap(f"{preset['name']}, {preset['task']}, {preset['bytes'] / 1e6:.1f} MB", width):
        print_line(line)
    for name in ("for", "not_for", "score", "license"):
        label = f"  {name.replace('_', ' '):9}"
        for line in textwrap.wrap(preset[name] or "", width, initial_indent=label, subsequent_indent=" " * len(label)):
            print_line(line)


class ExportCommand:
    """Write a preset as a TensorFlow SavedModel that takes raw input and answers with text."""

    examples = (
        "attention-apps export runs/mine/preset models/captioner",
        "attention-apps export show_attend_tell_flickr8k models/captioner --beam-size 3 --num-best 3",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("preset", metavar="PRESET", help="name of a preset, or the folder of a trained model")
        parser.add_argument("folder", metavar="FOLDER", help="named as the model is to be called; holds its versions")
        add_search_arguments(parser)
        parser.add_argument("--json", action="store_true", help="print what was written as JSON")
        parser.add_argument("--quiet", action="store_true", help="print nothing but errors")

    def run(self, options: argparse.Namespace) -> int:
        import_tensorflow_quietly(options.quiet)
        application = load(options.preset)
        version = application.export(options.folder, **search_options(options))
        size = sum(path.stat().st_size for path in version.rglob("*") if path.is_file())
        if options.json:
            print(json.dumps({"folder": str(version), "task": application.task, "bytes": size}))
        elif not options.quiet:
            print_line(f"{version}: {size / 1e6:.1f} MB; its inputs and outputs are in {version / 'README.md'}")
        return 0


class ServeCommand:
    """Serve presets and exported models over REST."""

    examples = (
        "attention-apps serve runs/mine/preset",
        "attention-apps serve models/captioner models/summarizer --port 8501",
        "curl http://127.0.0.1:8501/v1/models/captioner",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "models",
            nargs="+",
            metavar="PRESET|FOLDER",
            help="presets, folders of trained applications, or folders that `export` wrote; called by their last name",
        )
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8501, help="0 is any free one (default: %(default)s)")
        parser.add_argument(
            "--max-body", type=float, default=32, metavar="MB", help="of a request (default: %(default)s)"
        )
        parser.add_argument(
            "--timeout", type=float, default=60, metavar="SECONDS", help="of a request (default: %(default)s)"
        )
        parser.add_argument(
            "--max-batch", type=int, default=32, metavar="N", help="rows at once (default: %(default)s)"
        )
        parser.add_argument(
            "--batch-delay",
            type=float,
            default=5,
            metavar="MS",
            help="milliseconds that a request waits for others (default: %(default)s)",
        )
        parser.add_argument(
            "--max-pixels",
            type=float,
            default=100,
            metavar="MILLIONS",
            help="of a request's images, and of a batch (default: %(default)s)",
        )
        parser.add_argument(
            "--max-text",
            type=float,
            default=64,
            metavar="KB",
            help="of a request's texts, and of a batch; a sentence counts as 256 bytes or more (default: %(default)s)",
        )
        parser.add_argument(
            "--max-connections", type=int, default=2048, metavar="N", help="open connections (default: %(default)s)"
        )
        parser.add_argument(
            "--max-connections-per-peer",
            type=int,
            metavar="N",
            help="open connections from one address (default: no limit)",
        )
        parser.add_argument("--quiet", action="store_true", help="print nothing but errors")

    def run(self, options: argparse.Namespace) -> int:
        try:
            from attention_apps.serving.server import ServingLimits, run_server
        except ImportError as error:
            raise ValueError(str(error)) from None

        for name in ("max_body", "max_pixels", "max_text"):
            if not math.isfinite(getattr(options, name)):
                flag = name.replace("_", "-")
                raise ValueError(f"`--{flag}` must be a finite number. Received: {getattr(options, name)}")
        limits = ServingLimits(
            max_body=int(options.max_body * 2**20),
            max_total_body=int(max(options.max_body, 32) * 2**20) * 8,
            timeout=options.timeout,
            max_batch=options.max_batch,
            batch_delay=options.batch_delay / 1000,
            max_pixels=int(options.max_pixels * 1e6),
            max_text=int(options.max_text * 2**10),
            max_connections=options.max_connections,
            max_connections_per_peer=options.max_connections_per_peer,
        )
        names = [_name(model) for model in options.models]
        if len(set(names)) < len(names):
            raise ValueError(f"Models must differ in their last names. Received: {', '.join(names)}")
        import_tensorflow_quietly(options.quiet)
        models = {name: _load(model, name) for name, model in zip(names, options.models, strict=True)}

        def announce(url: str) -> None:
            if not options.quiet:
                for name in names:
                    say(f"serving {name} at {url}/v1/models/{name}:predict")
                if not is_loopback(options.host):
                    say("anyone who can reach this address can use it; there are no passwords here")
                say("Ctrl-C ends")

        costs = {"image_bytes": _decoded_pixels, "text": _text_cost}
        run_server(models, options.host, options.port, limits, announce, costs)
        return 0


def _decoded_pixels(data: bytes) -> int:
    """Return the pixels of an image that the model decodes. It refuses larger ones unread."""
    from attention_apps.preprocessing.image_graph import MAX_PIXELS
    from attention_apps.preprocessing.image_header import LARGEST_JPEG, image_cost

    pixels = image_cost(data)
    if pixels == LARGEST_JPEG:  # its size was not found, and it may be just below the limit
        return MAX_PIXELS
    return pixels if pixels <= MAX_PIXELS else 0


def _text_cost(data: bytes) -> int:
    """Return the bytes of a text that a model reads, and 256 for each sentence: a batch is padded to the longest."""
    from attention_apps.applications.compression.reader import MAX_EXPORTED_BYTES, MAX_EXPORTED_SENTENCES

    # Summarizers read a passage of a longer text; other models refuse it.
    ends = len(_SENTENCE_END.findall(data[:MAX_EXPORTED_BYTES]))
    return max(min(len(data), MAX_EXPORTED_BYTES), min(ends, MAX_EXPORTED_SENTENCES) * _SENTENCE_BYTES)


def _name(model: str) -> str:
    """Return the last part of the path that is not a version number."""
    path = Path(model).absolute()
    return path.parent.name if path.name.isdecimal() else path.name


def _load(model: str, name: str) -> Any:
    """Load an exported model, or export a preset to a temporary folder and load that."""
    from attention_apps.applications.preset import SUMS
    from attention_apps.serving.saved_model import LoadedModel

    if Path(model).is_dir() and not (Path(model) / SUMS).is_file():
        return LoadedModel(model)
    with tempfile.TemporaryDirectory() as folder:
        return LoadedModel(load(model).export(Path(folder) / name))


def is_loopback(host: str) -> bool:
    """Return whether only this computer can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def say(line: str) -> None:
    """Print a message to the user that is not a result."""
    print_line(f"attention-apps: {line}", sys.stderr)
