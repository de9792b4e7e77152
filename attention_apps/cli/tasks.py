"""The tasks of the command line, by name."""

import argparse
import importlib
from typing import Any

TASKS = {
    "image_captioning": ("attention_apps.applications.image_captioner", "ImageCaptioner"),
    "text_summarization": ("attention_apps.applications.text_summarizer", "TextSummarizer"),
}


def application_class(task: str) -> Any:
    """The application of a task, imported only now."""
    module, name = TASKS[task]
    return getattr(importlib.import_module(module), name)


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """What `train` and `check-data` share."""
    parser.add_argument("task", choices=sorted(TASKS), metavar="TASK", help=", ".join(sorted(TASKS)))
    parser.add_argument("--data", required=True, metavar="FILE", help="manifest to train on: .csv, .tsv or .jsonl")
    parser.add_argument("--validation", metavar="FILE", help="manifest whose generated texts decide what is kept")
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="OURS=THEIRS",
        help="the manifest's name of one of our columns, as caption=title; may be given several times",
    )
    parser.add_argument("--preset", metavar="NAME|FOLDER", help="start from a trained application: fine-tuning")
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


def make_application(options: argparse.Namespace) -> Any:
    """The application to train, new or from a preset, as the options say."""
    import dataclasses
    from pathlib import Path

    from attention_apps.training.config import read_config, to_dict

    cls = application_class(options.task)
    if options.preset is None:
        return cls(read_config(cls.config_class, options.config or {}, options.overrides))
    if options.config is not None:
        raise ValueError("`--config` is for a new application; change single values of a preset with `--set`.")
    start = cls.load(options.preset) if Path(options.preset).is_dir() else cls.from_preset(options.preset)
    changed = read_config(cls.config_class, to_dict(start.config), options.overrides)
    sections = {field.name for field in dataclasses.fields(changed)} & {"encoder", "decoder"}
    if any(getattr(changed, name) != getattr(start.config, name) for name in sections):
        raise ValueError("The sizes of a preset's model are fixed; `--set` can change training and decoding.")
    start.config = changed
    return start


def parse_columns(pairs: list[str]) -> dict[str, str]:
    """`["caption=title"]` as `{"caption": "title"}`."""
    columns = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not ours or not equals or not theirs:
            raise ValueError(f"`--column` must have the form OURS=THEIRS, as caption=title. Received: {pair!r}")
        columns[ours] = theirs
    return columns
