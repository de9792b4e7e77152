"""What all recipes share: prepare -> train -> calibrate -> evaluate -> export.

A recipe is the TOML file of an application with two more parts, both optional. `[[stages]]` are trained one after the
other: each has a `name`, what it changes in the configuration, and perhaps `init_from`, the stage whose weights it
starts with (by default the best one before it), and `data`, the manifest it is trained on. `[search]` has lists of
values for fields of `[decoding]`, of which the best combination is kept.
"""

import argparse
import dataclasses
import itertools
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import calibration as fitting
import numpy as np

STEPS = ("prepare", "train", "calibrate", "evaluate", "export")


@dataclasses.dataclass(frozen=True)
class Stage:
    """One training.

    Attributes:
        init_from: the stage whose weights it starts with, by default the best one before it.
        data: name of the manifest to train on, by default the recipe's.
    """

    name: str
    config: Any
    init_from: str | None = None
    data: str | None = None


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A task, its data and how its presets are trained.

    Args:
        task: name of the task.
        folder: of the recipe, with its configuration and card.
        prepare: reads the corpus and writes the manifests into the output folder.
        train, validation: names of the manifests to train on and to choose weights by.
        evaluated: names of the manifests that `evaluate` scores, if they are there.
        add_arguments: options of `prepare`.
        adapt: changes the configuration to fit the prepared data.
        load_pretrained: loads weights into a new model, in place of what the application does by itself.
        final_settings: `KEY=VALUE` of the trained model, for whoever uses and fine-tunes it.
        after_evaluate: measures more; called with the application and the options.
        calibration: how `calibrate` fits the confidence.
    """

    task: str
    folder: Path
    prepare: Callable[[argparse.Namespace], None]
    train: str
    validation: str
    evaluated: Sequence[str]
    add_arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    adapt: Callable[[Any, argparse.Namespace], Any] = lambda config, options: config
    load_pretrained: Callable[[Any], None] | None = None
    final_settings: Sequence[str] = ()
    after_evaluate: Callable[[Any, argparse.Namespace], None] = lambda application, options: None
    calibration: fitting.Calibration | None = None

    def main(self, description: str, arguments: Sequence[str] | None = None) -> None:
        """Runs the step that the command line names."""
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("step", choices=STEPS)
        parser.add_argument("--data", type=Path, help="folder of the corpus, for prepare")
        parser.add_argument("--output", type=Path, required=True, help="folder of the run")
        parser.add_argument("--config", type=Path, default=self.folder / "config.toml", help="the recipe, for train")
        parser.add_argument("--start", metavar="NAME|FOLDER", help="a preset to start from, for train")
        parser.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE", help="overrides the configuration"
        )
        parser.add_argument(
            "--foreign",
            type=Path,
            action="append",
            default=[],
            metavar="PATH",
            help="a folder of files, or a file of texts, on which the model should be unsure; may be repeated",
        )
        parser.add_argument("--card", type=Path, default=self.folder / "README.md", help="the card, for export")
        parser.add_argument("--bits", type=int, default=8, choices=(8, 16, 32), help="of a weight, for export")
        parser.add_argument("--restart", action="store_true", help="train from the beginning")
        parser.add_argument("--quiet", action="store_true")
        self.add_arguments(parser)
        options = parser.parse_args(arguments)
        steps = {
            "train": self.run_train,
            "calibrate": self.run_calibrate,
            "evaluate": self.run_evaluate,
            "export": self.run_export,
        }
        if options.step == "prepare":
            if options.data is None:
                raise SystemExit("`--data` must name the folder of the corpus.")
            self.prepare(options)
        else:
            steps[options.step](options)

    def run_train(self, options: argparse.Namespace) -> None:
        """Trains all stages, resumes where it stopped, and saves the best model in `model`."""
        stages, search = self._read(options)
        best, best_score, table = options.start, None, []
        for stage in stages:
            folder = options.output / "stages" / stage.name
            if options.restart or not _is_done(stage, folder):
                start = options.output / "stages" / stage.init_from / "model" if stage.init_from else best
                self._train_stage(stage, folder, start, options)
            scores = _read_json(folder / "scores.json")
            is_best = best_score is None or _score(scores) > best_score
            table.append({"stage": stage.name, **scores, "kept": is_best})
            print(json.dumps(table[-1]))
            if is_best:
                best, best_score = folder / "model", _score(scores)
        application = _with_settings(_load(best), self.final_settings)
        if search:
            application, row = self._choose_search(application, search, options)
            table.append(row)
        _write_json(options.output / "stages.json", table)
        application.save(options.output / "model")

    def run_evaluate(self, options: argparse.Namespace) -> None:
        """Scores the trained model, and writes its texts next to the references."""
        application = _with_settings(_load(options.output / "model"), options.set)
        for name in self.evaluated:
            manifest = options.output / name
            if not manifest.is_file():
                continue
            evaluation = application.evaluate(manifest, cache=options.output / "cache", quiet=options.quiet)
            print(json.dumps({"data": _stem(manifest), **_round(evaluation)}))
            with (options.output / f"{_stem(manifest)}_written.jsonl").open("w", encoding="utf-8") as file:
                rows = zip(evaluation.sources, evaluation.references, evaluation.texts, strict=True)
                for source, references, text in rows:
                    entry = {"source": source, "references": references, "written": text}
                    file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        self.after_evaluate(application, options)

    def run_calibrate(self, options: argparse.Namespace) -> None:
        """Fits the confidence of the trained model on half of the data, and measures it on the other half.

        The model keeps what `--set` changes.
        """
        from attention_apps.training import lower_is_better

        if self.calibration is None:
            raise SystemExit(f"There is no calibration for {self.task}.")
        rule = self.calibration
        raw = ["confidence.slope=1.0", "confidence.offset=0.0", "confidence.threshold=0.0"]
        application = _with_settings(_load(options.output / "model"), [*options.set, *raw])
        manifest = options.output / rule.data
        evaluation = application.evaluate(manifest, cache=options.output / "cache", quiet=options.quiet)
        items = evaluation.metrics[rule.metric].items
        right = items <= rule.right if lower_is_better(rule.metric) else items >= rule.right
        slope, offset = fitting.fit(evaluation.confidences[::2], right[::2])
        confidence = fitting.apply(evaluation.confidences, slope, offset)
        threshold = float(np.quantile(confidence[::2], rule.unsure))
        scores = {
            "right": float(right.mean()),
            "calibration_error": fitting.expected_calibration_error(confidence[1::2], right[1::2]),
            "unsure": float((confidence[1::2] < threshold).mean()),
        }
        settings = [f"confidence.slope={slope}", f"confidence.offset={offset}", f"confidence.threshold={threshold}"]
        application = _with_settings(application, settings)
        for path in options.foreign:
            items = sorted(path.iterdir()) if path.is_dir() else path.read_text(encoding="utf-8").splitlines()
            foreign = list(application.run(items))
            scores[f"{path.stem}_unsure"] = sum(result.unsure for result in foreign) / len(foreign)
        print(json.dumps({name: round(score, 4) for name, score in scores.items()}))
        fitting.draw_reliability(confidence[1::2], right[1::2], options.output / "reliability.png")
        application.save(options.output / "model")

    def run_export(self, options: argparse.Namespace) -> None:
        """Writes the preset, OUTPUT/preset."""
        application = _with_settings(_load(options.output / "model"), options.set)
        card = options.card.read_text(encoding="utf-8")
        application.save(options.output / "preset", card=card, bits=options.bits)
        print(options.output / "preset")

    def _read(self, options: argparse.Namespace) -> tuple[list[Stage], dict[str, list[Any]]]:
        from attention_apps.applications import application_class

        config_class = application_class(self.task).config_class
        stages, search = read_recipe(options.config, config_class, options.set)
        return [dataclasses.replace(stage, config=self.adapt(stage.config, options)) for stage in stages], search

    def _train_stage(self, stage, folder, start, options):
        import keras

        from attention_apps.applications import application_class

        (folder / "scores.json").unlink(missing_ok=True)
        keras.utils.set_random_seed(stage.config.training.seed)
        if start:
            application = _load(start).with_config(stage.config)
        else:
            application = application_class(self.task)(stage.config)
            if self.load_pretrained:
                application.parts = dataclasses.replace(application.parts, load_pretrained=self.load_pretrained)
        application.fit(
            options.output / (stage.data or self.train),
            options.output / self.validation,
            output=folder / "run",
            cache=options.output / "cache",
            restart=options.restart,
            quiet=options.quiet,
        )
        application.save(folder / "model")
        _write_json(folder / "scores.json", self._score(application, options))

    def _score(self, application, options, **search):
        manifest = options.output / self.validation
        cache = options.output / "cache"
        return _round(application.evaluate(manifest, cache=cache, quiet=options.quiet, **search))

    def _choose_search(self, application, search, options):
        """The application with the settings of the search that score best, and their row of the table."""
        choices = [dict(zip(search, values, strict=True)) for values in itertools.product(*search.values())]
        scores = [self._score(application, options, **choice) for choice in choices]
        place = max(range(len(choices)), key=lambda index: _score(scores[index]))
        row = {"stage": "search", **scores[place], **choices[place], "kept": True}
        print(json.dumps(row))
        decoding = dataclasses.replace(application.config.decoding, **choices[place])
        application.config = dataclasses.replace(application.config, decoding=decoding)
        return application, row


def read_recipe(
    path: Path, config_class: type, overrides: Sequence[str] = ()
) -> tuple[list[Stage], dict[str, list[Any]]]:
    """Reads the stages and the search of a recipe; `overrides`, as `["training.epochs=1"]`, hold for every stage."""
    from attention_apps.training import read_config

    if not path.is_file():
        raise FileNotFoundError(f"There is no recipe {path}")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: is not valid TOML: {error}") from None
    tables, search = content.pop("stages", [{"name": "training"}]), content.pop("search", {})
    names = [table.pop("name", "") for table in tables]
    if len(set(names)) != len(names) or not all(name.isidentifier() for name in names):
        raise ValueError(f"{path}: `stages` must have different names, made of letters. Received: {names}")
    starts = [table.pop("init_from", None) for table in tables]
    for place, start in enumerate(starts):
        if start is not None and start not in names[:place]:
            raise ValueError(f"{path}: `init_from` must name an earlier stage. Received: {start!r} in {names[place]!r}")
    data = [table.pop("data", None) for table in tables]
    try:
        configs = [read_config(config_class, _merge(content, table), overrides) for table in tables]
        stages = [Stage(*parts) for parts in zip(names, configs, starts, data, strict=True)]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    known = {field.name for field in dataclasses.fields(stages[0].config.decoding)}
    if not set(search) <= known or not all(isinstance(values, list) and values for values in search.values()):
        raise ValueError(f"{path}: `search` must have lists of values for some of {', '.join(sorted(known))}")
    return stages, search


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        merged[key] = _merge(merged.get(key, {}), value) if isinstance(value, Mapping) else value
    return merged


def _is_done(stage: Stage, folder: Path) -> bool:
    """Whether a stage was trained before; raises an error if another one of the same name was."""
    from attention_apps.training import to_dict

    if not (folder / "scores.json").is_file():
        return False
    before = _read_json(folder / "model" / "config.json")["config"]
    if before != json.loads(json.dumps(to_dict(stage.config))):
        raise ValueError(f"{folder} was trained with another configuration. Use --restart, or another --output.")
    return True


def _load(preset: Any) -> Any:
    from attention_apps import load

    return load(preset)


def _with_settings(application: Any, settings: Sequence[str]) -> Any:
    from attention_apps.training import read_config, to_dict

    if not settings:
        return application
    return application.with_config(read_config(type(application.config), to_dict(application.config), settings))


def _round(evaluation: Any) -> dict[str, float]:
    return {name: round(result.score, 4) for name, result in evaluation.metrics.items()}


def _score(scores: Mapping[str, float]) -> float:
    """The first score, where more is better."""
    from attention_apps.training import lower_is_better

    name, score = next((name, score) for name, score in scores.items() if isinstance(score, float))
    return -score if lower_is_better(name) else score


def _stem(path: Path) -> str:
    return path.name.split(".")[0]


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
