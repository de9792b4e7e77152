"""Lists the presets that came with the package: name, task, score, size, license."""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attention_apps.terminal import print_line

# A line of the card: "- License: ..." or "| License | ... |", in bold or not.
_CARD_LINE = r"^\W*{}\W*[:|]\W*?(\w.*?)[\s|]*$"

_EXAMPLES = """examples:
  attention-apps presets
  attention-apps presets --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    parser.add_argument("--quiet", action="store_true", help="as everywhere; there is nothing here but the list")


def run(options: argparse.Namespace) -> int:
    from attention_apps.applications.preset import preset_names, presets_root

    presets = [describe(presets_root() / name) for name in preset_names()]
    if options.json:
        print(json.dumps(presets, ensure_ascii=False))
    else:
        rows = [("name", "task", "score", "size", "license")]
        rows += [
            (one["name"], one["task"], one["score"] or "", f"{one['bytes'] / 1e6:.1f} MB", one["license"] or "")
            for one in presets
        ]
        _print_table(rows)
    return 0


def describe(folder: Path) -> dict[str, Any]:
    from attention_apps.applications.preset import CARD, read_task

    card = (folder / CARD).read_text(encoding="utf-8") if (folder / CARD).is_file() else ""
    return {
        "name": folder.name,
        "task": read_task(folder),
        "score": _find(card, "score"),
        "bytes": sum(path.stat().st_size for path in folder.iterdir()),
        "license": _find(card, "licen[cs]e"),
    }


def _find(card: str, word: str) -> str | None:
    match = re.search(_CARD_LINE.format(word), card, re.IGNORECASE | re.MULTILINE)
    return None if match is None else match[1]


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
