"""Measures a preset on a data set, each figure with its 95 % bootstrap interval."""

import argparse
import json
from typing import Any

from attention_apps.cli.quiet import import_tensorflow_quietly
from attention_apps.cli.tasks import (
    add_column_argument,
    add_search_arguments,
    load_application,
    parse_columns,
    search_options,
)

_EXAMPLES = """examples:
  attention-apps evaluate runs/mine/preset held_out.csv
  attention-apps evaluate show_attend_tell_flickr8k photos.csv --column caption=title --beam-size 1 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.add_argument("preset", metavar="PRESET", help="name of a preset, or the folder of a trained application")
    parser.add_argument("data", metavar="DATA", help="manifest: .csv, .tsv or .jsonl")
    add_column_argument(parser)
    add_search_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(options: argparse.Namespace) -> int:
    columns = parse_columns(options.column)
    import_tensorflow_quietly()
    from attention_apps.metrics import bootstrap_interval

    application = load_application(options.preset)
    decoding = search_options(application.config.decoding, options)
    evaluation = application.evaluate(options.data, columns, options=decoding, quiet=options.quiet)
    figures = {
        name: {"score": float(result.score), "interval": list(bootstrap_interval(result))}
        for name, result in evaluation.metrics.items()
    }
    if options.json:
        print(json.dumps({"items": len(evaluation.texts), "skipped": evaluation.skipped, "metrics": figures}))
    else:
        _print_table(figures)
        left_out = f"; {evaluation.skipped:,} rows could not be used" if evaluation.skipped else ""
        print(f"{len(evaluation.texts):,} items{left_out}")
    return 1 if evaluation.skipped else 0


def _print_table(figures: dict[str, Any]) -> None:
    width = max(len(name) for name in [*figures, "metric"])
    print(f"{'metric':{width}}  {'score':>8}  95 % interval")
    for name, figure in figures.items():
        low, high = figure["interval"]
        print(f"{name:{width}}  {figure['score']:8.4f}  {low:.4f} to {high:.4f}")
