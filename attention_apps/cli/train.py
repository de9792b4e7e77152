"""The commands that take a data set: `train`, `check-data` and `evaluate`."""

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attention_apps.applications.tasks import TASKS, application_class, load
from attention_apps.cli.predict import add_search_arguments, search_options
from attention_apps.terminal import import_tensorflow_quietly, print_line


class TrainCommand:
    """Train a model on your own data. The same command resumes after an interruption."""

    examples = (
        "attention-apps train image_captioning --data photos.csv --validation held_out.csv --output runs/mine",
        "attention-apps train text_summarization --data news.jsonl --column summary=headline --output runs/news",
        "attention-apps train speech_recognition --preset listen_attend_spell_an4 --data calls.csv --output runs/calls",
        "attention-apps train machine_translation --data pairs.tsv --output runs/pairs",
        "attention-apps train image_captioning --data photos.csv --output runs/short --set training.max_minutes=10",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_data_arguments(parser)
        parser.add_argument(
            "--output", required=True, metavar="FOLDER", help="checkpoints, logs, and `preset/` at the end"
        )
        parser.add_argument(
            "--cache", metavar="FOLDER", help="folder for what is computed once for each source (default: in --output)"
        )
        parser.add_argument("--restart", action="store_true", help="start over where the folder holds a run")
        parser.add_argument("--json", action="store_true", help="print the result as JSON")

    def run(self, options: argparse.Namespace) -> int:
        import_tensorflow_quietly(options.quiet)
        from attention_apps.training import TrainingInterrupted, find_strategy, is_chief

        columns = parse_columns(options.column)
        output = Path(options.output)
        strategy = find_strategy()
        with strategy.scope():
            application = _make_application(options)
            try:
                histories = application.fit(
                    options.data,
                    validation=options.validation,
                    output=output,
                    columns=columns,
                    cache=options.cache,
                    restart=options.restart,
                    quiet=options.quiet,
                )
            except TrainingInterrupted as interruption:
                command = [argument for argument in options.arguments if argument != "--restart"]
                print_line(str(interruption), sys.stderr)
                print_line(f"To resume: {shlex.join(['attention-apps', *command])}", sys.stderr)
                return 128 + interruption.signal_number
            if not is_chief(strategy):
                return 0
            application.save(output / "preset")
        if options.json:
            print(json.dumps([asdict(history) for history in histories]))
        elif not options.quiet:
            print_line(f"saved in {output / 'preset'}")
        return 0


class CheckDataCommand:
    """List what is wrong with a data set, with file and line, without training."""

    examples = (
        "attention-apps check-data image_captioning --data photos.csv",
        "attention-apps check-data speech_recognition --data calls.csv --validation held_out.csv --json",
        "attention-apps check-data text_summarization --data news.jsonl --column summary=headline",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_data_arguments(parser)
        _add_cache_argument(parser)
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def run(self, options: argparse.Namespace) -> int:
        import_tensorflow_quietly(options.quiet)
        application = _make_application(options)
        columns = parse_columns(options.column)
        data, quiet = (options.data, options.validation), options.quiet
        report = application.check_data(*data, columns, quiet=quiet, cache=options.cache)
        print(json.dumps(report.to_dict()) if options.json else report.to_text())
        return 1 if report.counts else 0


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
        _add_cache_argument(parser)
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
        with _manifest_to_score(application, options) as data:
            evaluation = application.evaluate(
                data, columns, options.cache, quiet=options.quiet, **search_options(options)
            )
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


def add_column_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--column`, which maps our column names to those of the manifest."""
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="OURS=THEIRS",
        help="the manifest's name of one of our columns, as caption=title; may be given several times",
    )


def _add_cache_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cache", metavar="FOLDER", help="keep what is computed for each file, for later calls")


def parse_columns(pairs: list[str]) -> dict[str, str]:
    """Return `["caption=title"]` as `{"caption": "title"}`."""
    columns = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not ours or not equals or not theirs:
            raise ValueError(f"`--column` must have the form OURS=THEIRS, as caption=title. Received: {pair!r}")
        columns[ours] = theirs
    return columns


def _add_data_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", choices=sorted(TASKS), metavar="TASK", help=", ".join(sorted(TASKS)))
    parser.add_argument("--data", required=True, metavar="FILE", help="manifest to train on: .csv, .tsv or .jsonl")
    parser.add_argument("--validation", metavar="FILE", help="manifest whose generated texts decide what is kept")
    add_column_argument(parser)
    parser.add_argument(
        "--preset", metavar="NAME|FOLDER|hf://USER/MODEL", help="start from a trained model: fine-tuning"
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file with the configuration")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="KEY=VALUE",
        help="one value of the configuration, as training.epochs=3; may be given several times",
    )
    parser.add_argument("--quiet", action="store_true", help="show nothing but results and errors")


def _make_application(options: argparse.Namespace) -> Any:
    """Return the application to train, new or from a preset."""
    from attention_apps.training.config import read_config, to_dict

    cls = application_class(options.task)
    if options.preset is None:
        return cls(read_config(cls.config_class, options.config or {}, options.overrides))
    if options.config is not None:
        raise ValueError("`--config` is for a new model; change single values of a preset with `--set`.")
    start = cls.from_preset(options.preset)
    changed = read_config(cls.config_class, to_dict(start.config), options.overrides)
    if getattr(changed, "features", None) != getattr(start.config, "features", None):
        raise ValueError("`features` cannot be changed for a preset.")
    return start if changed == start.config else start.with_config(changed)


@contextmanager
def _manifest_to_score(application: Any, options: argparse.Namespace) -> Iterator[str]:
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
