"""Serves presets and exported models with the REST format of TensorFlow Serving, for trying things out."""

import argparse
import ipaddress
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

from attention_apps.cli.quiet import import_tensorflow_quietly
from attention_apps.cli.tasks import load_application

_EXAMPLES = """examples:
  attention-apps serve runs/mine/preset
  attention-apps serve models/captioner models/summarizer --port 8501
  curl http://127.0.0.1:8501/v1/models/captioner
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "models",
        nargs="+",
        metavar="PRESET|FOLDER",
        help="presets, folders of trained applications, or folders that `export` wrote; called by their last name",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8501, help="0 is any free one (default: %(default)s)")
    parser.add_argument("--max-body", type=float, default=32, metavar="MB", help="of a request (default: %(default)s)")
    parser.add_argument(
        "--timeout", type=float, default=60, metavar="SECONDS", help="of a request (default: %(default)s)"
    )
    parser.add_argument("--max-batch", type=int, default=32, metavar="N", help="rows at once (default: %(default)s)")
    parser.add_argument(
        "--batch-delay",
        type=float,
        default=5,
        metavar="MS",
        help="milliseconds that a request waits for others (default: %(default)s)",
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")


def run(options: argparse.Namespace) -> int:
    from attention_apps.serving.server import ServingLimits, import_uvicorn, run_server

    import_uvicorn()
    if not math.isfinite(options.max_body):
        raise ValueError(f"`--max-body` must be a number of megabytes. Received: {options.max_body}")
    limits = ServingLimits(
        max_body=int(options.max_body * 2**20),
        timeout=options.timeout,
        max_batch=options.max_batch,
        batch_delay=options.batch_delay / 1000,
    )
    names = [_name(model) for model in options.models]
    if len(set(names)) < len(names):
        raise ValueError(f"Models must differ in their last names. Received: {', '.join(names)}")
    import_tensorflow_quietly()
    models = {name: _load(model, name) for name, model in zip(names, options.models, strict=True)}

    def announce(url: str) -> None:
        if not options.quiet:
            for name in names:
                say(f"serving {name} at {url}/v1/models/{name}:predict")
            if not is_loopback(options.host):
                say("anyone who can reach this address can use it; there are no passwords here")
            say("Ctrl-C ends")

    run_server(models, options.host, options.port, limits, announce)
    return 0


def _name(model: str) -> str:
    """The last part of a path that is no version."""
    path = Path(model).absolute()
    return path.parent.name if path.name.isdecimal() else path.name


def _load(model: str, name: str) -> Any:
    """What `export` wrote, or what it would write of a preset."""
    from attention_apps.applications.preset_folder import SUMS
    from attention_apps.serving.loaded_model import LoadedModel

    if Path(model).is_dir() and not (Path(model) / SUMS).is_file():
        return LoadedModel(model)
    with tempfile.TemporaryDirectory() as folder:
        return LoadedModel(load_application(model).export(Path(folder) / name))


def is_loopback(host: str) -> bool:
    """Whether an address is this computer's own, which no other can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def say(line: str) -> None:
    """Tells the user something that is no result."""
    print(f"attention-apps: {line}", file=sys.stderr, flush=True)
