"""Options that several commands share."""

import argparse
from collections.abc import Mapping
from typing import Any

from attention_apps.applications.tasks import TASKS, application_class


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """How the model searches for its texts."""
    parser.add_argument("--beam-size", type=int, metavar="N", help="hypotheses of the search; 1 is greedy")
    parser.add_argument("--num-best", type=int, metavar="N", help="texts for each input, best first")
    parser.add_argument("--max-length", type=int, metavar="N", help="the longest text, in tokens of the model")


def search_options(options: argparse.Namespace, others: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The options of the search and the output that the user gave, as keywords.

    Args:
        others: more names and values; `None` is not given.
    """
    given = {"beam_size": options.beam_size, "num_best": options.num_best, "max_length": options.max_length}
    return {name: value for name, value in {**given, **(others or {})}.items() if value is not None}


def add_column_argument(parser: argparse.ArgumentParser) -> None:
    """The manifest's own names of our columns."""
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="OURS=THEIRS",
        help="the manifest's name of one of our columns, as caption=title; may be given several times",
    )


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """What `train` and `check-data` share."""
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


def make_application(options: argparse.Namespace) -> Any:
    """The application to train, new or from a preset, as the options say."""
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


def parse_columns(pairs: list[str]) -> dict[str, str]:
    """`["caption=title"]` as `{"caption": "title"}`."""
    columns = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not ours or not equals or not theirs:
            raise ValueError(f"`--column` must have the form OURS=THEIRS, as caption=title. Received: {pair!r}")
        columns[ours] = theirs
    return columns
