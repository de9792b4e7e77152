"""The tasks of the command line, by name."""

import argparse
import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

TASKS = {
    "image_captioning": ("attention_apps.applications.image_captioner", "ImageCaptioner"),
    "speech_recognition": ("attention_apps.applications.speech_recognizer", "SpeechRecognizer"),
    "text_summarization": ("attention_apps.applications.text_summarizer", "TextSummarizer"),
}


def application_class(task: str) -> Any:
    """The application of a task, imported only now."""
    module, name = TASKS[task]
    return getattr(importlib.import_module(module), name)


def load_preset(cls: Any, preset: str | None = None) -> Any:
    """The application of a preset, by its name or its folder; by default the class's own."""
    from pathlib import Path

    if preset is not None and Path(preset).is_dir():
        return cls.load(preset)
    return cls.from_preset(cls.default_preset if preset is None else preset)


def load_application(preset: str) -> Any:
    """The application of a preset, by its name or its folder, whatever its task."""
    from pathlib import Path

    from attention_apps.applications.preset_folder import find_preset, read_preset_config

    folder = Path(preset) if Path(preset).is_dir() else find_preset(preset)
    task = read_preset_config(folder).get("task")
    if not isinstance(task, str) or task not in TASKS:
        raise ValueError(f"{folder}: `task` must be one of {', '.join(sorted(TASKS))}. Received: task={task!r}")
    return application_class(task).load(folder)


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """How the model is to search for its texts."""
    parser.add_argument("--beam-size", type=int, metavar="N", help="hypotheses of the search; 1 is greedy")
    parser.add_argument("--n-best", type=int, metavar="N", help="texts for each input, best first")
    parser.add_argument("--max-length", type=int, metavar="N", help="the longest text, in tokens of the model")


def search_options(preset: Any, options: argparse.Namespace, further: Mapping[str, Any] | None = None) -> Any:
    """A preset's decoding options with what the user said; a limit that was not given makes way for one that was.

    Args:
        further: more fields and their values; `None` leaves a field as it is.
    """
    given = {"beam_size": options.beam_size, "num_best": options.n_best, "max_length": options.max_length}
    given = {name: value for name, value in {**given, **(further or {})}.items() if value is not None}
    if "num_best" in given and "beam_size" not in given:
        given["beam_size"] = max(preset.beam_size, given["num_best"])
    elif "beam_size" in given and "num_best" not in given:
        given["num_best"] = max(min(preset.num_best, given["beam_size"]), 1)
    if "max_length" in given and "min_length" not in given:
        given["min_length"] = max(min(preset.min_length, given["max_length"]), 0)
    return dataclasses.replace(preset, **given)


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
    from attention_apps.training.config import read_config, to_dict

    cls = application_class(options.task)
    if options.preset is None:
        return cls(read_config(cls.config_class, options.config or {}, options.overrides))
    if options.config is not None:
        raise ValueError("`--config` is for a new application; change single values of a preset with `--set`.")
    start = load_preset(cls, options.preset)
    changed = read_config(cls.config_class, to_dict(start.config), options.overrides)
    if getattr(changed, "features", None) != getattr(start.config, "features", None):
        raise ValueError("What a preset's model was trained to hear is fixed: `--set` cannot change `features`.")
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
