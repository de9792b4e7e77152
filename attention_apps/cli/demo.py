"""Opens a page on which the presets caption photos, write down recordings, summarize and translate texts, and show
where they looked for each word."""

import argparse
import webbrowser
from typing import Any

from attention_apps.applications.tasks import application_class
from attention_apps.cli.quiet import import_tensorflow_quietly, only_python_on_stderr
from attention_apps.cli.serve import is_loopback, say
from attention_apps.cli.terminal_demo import show_in_terminal
from attention_apps.cli.web_page import TABS, import_gradio, run_page

_EXAMPLES = """examples:
  attention-apps demo
  attention-apps demo --captioner runs/mine/preset --port 8080
  attention-apps demo --terminal
  attention-apps demo --terminal attention listen
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    for tab in TABS.values():
        shown = f"trained model of the tab {tab.title} (default: the task's own)"
        parser.add_argument(f"--{tab.option}", metavar="NAME|FOLDER", help=shown)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=7860, help="0 is any free one (default: %(default)s)")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="further host name or address under which browsers reach the page; may be repeated",
    )
    parser.add_argument("--no-browser", action="store_true", help="do not open the page, only say where it is")
    parser.add_argument(
        "--terminal",
        nargs="*",
        metavar="WORD",
        help="no page: a small model learns to write words backwards, these or others, and the presets write sentences",
    )
    parser.add_argument("--steps", type=int, default=600, help="training steps for --terminal (default: %(default)s)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, and nothing but errors said")


def run(options: argparse.Namespace) -> int:
    if options.terminal is not None:
        if options.steps < 1:
            raise ValueError(f"`--steps` must be at least 1. Received: {options.steps}")
        show_in_terminal(options.terminal, options.steps, options.quiet)
    else:
        _show_page(options)
    return 0


def _show_page(options: argparse.Namespace) -> None:
    import_gradio()
    import_tensorflow_quietly(options.quiet)
    applications = {task: _load(task, getattr(options, tab.option)) for task, tab in TABS.items()}

    def announce(url: str) -> None:
        if not options.quiet:
            say(f"the page is at {url}")
            if not is_loopback(options.host):
                say("anyone who can reach this address can use it; there are no passwords here")
                say("other host names than this one are refused; `--allow-host NAME` adds one")
                say("browsers give a camera and a microphone to pages of their own computer, or to such with https")
            say("Ctrl-C ends")
        if not options.no_browser:
            webbrowser.open(url)

    with only_python_on_stderr():
        names = {task: getattr(options, tab.option) for task, tab in TABS.items()}
        run_page(applications, options.host, options.port, announce, options.allow_host, names)


def _load(task: str, preset: str | None) -> Any:
    """The application of a tab, or `None` where nobody asked for one and none came with the package."""
    from attention_apps.applications.preset import preset_names

    cls = application_class(task)
    return None if preset is None and cls.default_preset not in preset_names() else cls.from_preset(preset)
