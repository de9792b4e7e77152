"""The command `evaluate`."""

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attention_apps.applications.tasks import load
from attention_apps.cli.predict import add_search_arguments, search_options
from attention_apps.cli.train import add_column_argument, parse_columns
from attention_apps.terminal import import_tensorflow_quietly


class EvaluateCommand:
    """Score a preset on a data set, each score with its 95 % bootstrap interval."""

    examples = (
        "attention-apps evaluate runs/mine/preset held_out.csv",
        "attention-apps evaluate show_attend_tell_flickr8k photos.csv --column caption=title --beam-size 1 --json",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("preset", metavar="PRESET", help="name of a preset, or the folder of a trained model")
        parser.add_argument("data", metavar="DATA", help="manifest: .csv, .tsv or .jsonl")
        add_column_argument(parser)
        add_search_arguments(parser)
        parser.add_argument(
            "--boxes",
            metavar="FILE",
            help="table of objects in the photos (image, class, left, top, right, bottom, from 0 to 1): scores also "
            "how often attention points at the object that a word names",
        )
        parser.add_argument("--json", action="store_true", help="print the scores as JSON")
        parser.add_argument("--quiet", action="store_true", help="no progress bar")

    def run(self, options: argparse.Namespace) -> int:
        columns = parse_columns(options.column)
        import_tensorflow_quietly(options.quiet)
        from attention_apps.metrics import bootstrap_interval

        application = load(options.preset)
        with _data(application, options) as data:
            evaluation = application.evaluate(data, columns, quiet=options.quiet, **search_options(options))
        scores: dict[str, dict[str, Any]] = {
            name: {"score": float(result.score), "interval": list(bootstrap_interval(result))}
            for name, result in evaluation.metrics.items()
        }
        if options.json:
            print(json.dumps({"items": len(evaluation.texts), "skipped": evaluation.skipped, "metrics": scores}))
        else:
            width = max(len(name) for name in [*scores, "metric"])
            print(f"{'metric':{width}}  {'score':>8}  95 % interval")
            for name, score in scores.items():
                low, high = score["interval"]
                print(f"{name:{width}}  {score['score']:8.4f}  {low:.4f} to {high:.4f}")
            left_out = f"; {evaluation.skipped:,} rows could not be used" if evaluation.skipped else ""
            print(f"{len(evaluation.texts):,} items{left_out}")
        return 1 if evaluation.skipped else 0


@contextmanager
def _data(application: Any, options: argparse.Namespace) -> Iterator[str]:
    """Yield the manifest to score, with the boxes of the photos if there is a table of them."""
    if options.boxes is None:
        yield options.data
        return
    from attention_apps.applications import join_boxes

    if application.task != "image_captioning":
        raise ValueError(f"`--boxes` is for image captioning. Received: a preset for {application.task}")
    columns = parse_columns(options.column)
    rows = application.manifest(options.data, columns).rows()
    with tempfile.TemporaryDirectory() as folder:
        joined = Path(folder) / f"{Path(options.data).name.split('.')[0]}.jsonl"
        with joined.open("w", encoding="utf-8") as file:
            for values in join_boxes((row.values for row in rows), options.boxes):
                renamed = {columns.get(name, name): value for name, value in values.items()}
                file.write(
                    json.dumps({**renamed, columns.get("image", "image"): os.path.abspath(values["image"])}) + "\n"
                )
        yield str(joined)
