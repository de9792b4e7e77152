"""The command `presets`, and what the card of a preset says."""

import argparse
import json
import re
import shutil
import textwrap
from pathlib import Path
from typing import Any

from attention_apps.terminal import print_line

# A line of the card: "- License: ..." or "| License | ... |", in bold or not.
_CARD_LINE = r"^\W*{}\W*[:|]\W*?(\w.*?)[\s|]*$"


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
