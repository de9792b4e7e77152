"""Measures what each part of a recipe contributes: trains variants of it one after the other and prints a table.

python apps/ablation.py apps/text_summarization/ablation.toml --data PREPARED --output ABLATION [--only NAME]

An ablation is a TOML file next to a recipe's run.py. `set` has the settings of all variants. Each of `[[variants]]` has
a `name` and, where it differs from config.toml: `config`, another configuration; `set`, further settings; `base`, an
earlier variant whose settings it takes over; `init_from`, an earlier variant whose weights it starts with. With
`train = false` the weights of `init_from` are evaluated with the settings of the variant; with `averaged = false` as
well, these are the last weights of the training, without weight averaging.

PREPARED is a folder after `run.py prepare`. A variant that was measured before is not trained again. An interrupted
training resumes.
"""

import argparse
import json
import resource
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def read_ablation(path: Path) -> list[dict[str, Any]]:
    """The variants, each with all of its settings."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    common, variants = content.pop("set", []), content.pop("variants", [])
    names = [variant.get("name") for variant in variants]
    known = {"name", "config", "set", "base", "init_from", "train", "averaged"}
    if content or any(not set(variant) <= known for variant in variants):
        raise ValueError(f"{path}: an ablation has `set` and `variants`, a variant has {', '.join(sorted(known))}")
    if not all(names) or len(set(names)) != len(names):
        raise ValueError(f"{path}: variants must have different names. Received: {names}")
    settings: dict[str, list[str]] = {}
    for variant in variants:
        for other in (variant.get("base"), variant.get("init_from")):
            if other is not None and other not in settings:
                raise ValueError(f"{path}: {variant['name']!r} must come after {other!r}")
        if not variant.get("train", True) and "init_from" not in variant:
            raise ValueError(f"{path}: {variant['name']!r} with `train = false` must have `init_from`")
        if variant.get("train", True) and "averaged" in variant:
            raise ValueError(f"{path}: {variant['name']!r} with `averaged` must have `train = false`")
        settings[variant["name"]] = [*settings.get(variant.get("base"), common), *variant.get("set", [])]
    return [{"config": "config.toml", **variant, "set": settings[variant["name"]]} for variant in variants]


def measure(variant: dict[str, Any], recipe: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The scores of a variant and the CPU minutes of its training, which do not depend on other load."""
    folder = options.output / folder_of(variant["name"])
    result = folder / "result.json"
    if result.is_file():
        return json.loads(result.read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    for path in options.data.iterdir():
        if path.is_file() and not (folder / path.name).exists():
            (folder / path.name).symlink_to(path.resolve())
    settings = [part for value in [*variant["set"], *options.set] for part in ("--set", value)]
    before = (options.output / folder_of(variant["init_from"]) / "model").resolve() if "init_from" in variant else None
    began = _cpu_minutes()
    if variant.get("train", True):
        start = [] if before is None else ["--start", before]
        _run(recipe, "train", folder, "--config", recipe / variant["config"], *start, *settings)
        settings = []
    elif not (folder / "model").exists():
        if variant.get("averaged", True):
            (folder / "model").symlink_to(before)
        else:
            _save_last_weights(before, folder / "model")
    minutes = _cpu_minutes() - began
    lines = _run(recipe, "evaluate", folder, *settings).splitlines()
    scores = next(json.loads(line) for line in lines if line.startswith("{"))
    figures = {"scores": scores, "minutes": round(minutes, 1)}
    result.write_text(json.dumps(figures) + "\n", encoding="utf-8")
    return figures


def to_table(results: dict[str, dict[str, Any]]) -> str:
    """The variants as a Markdown table, scores in percent."""
    names = [name for name, value in next(iter(results.values()))["scores"].items() if isinstance(value, float)]
    lines = [f"| variant | {' | '.join(names)} | CPU minutes |", "|---|" + "---|" * (len(names) + 1)]
    for variant, result in results.items():
        scores = " | ".join(f"{100 * result['scores'][name]:.1f}" for name in names)
        lines.append(f"| {variant} | {scores} | {result['minutes']:.0f} |")
    return "\n".join(lines)


def _save_last_weights(model, output):
    """Saves a trained application with the weights at the end of its training."""
    from attention_apps import load
    from attention_apps.training import CheckpointFolder, assign_arrays

    application = load(model)
    (checkpoints,) = (model.parent / "stages").glob("*/run/*/checkpoints")
    assign_arrays("model", application.model.variables, CheckpointFolder(checkpoints).load("last").arrays)
    application.save(output)


def _cpu_minutes():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) / 60


def folder_of(name: str) -> str:
    """The name of a variant's folder."""
    return "".join(letter if letter.isalnum() else "_" for letter in name).strip("_")


def _run(recipe, step, folder, *arguments):
    command = [sys.executable, recipe / "run.py", step, "--output", folder, "--quiet", *arguments]
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ablation", type=Path, help="the TOML file, next to the recipe's run.py")
    parser.add_argument("--data", type=Path, required=True, help="folder after `run.py prepare`")
    parser.add_argument("--output", type=Path, required=True, help="folder of all runs")
    parser.add_argument("--only", action="append", metavar="NAME", help="this variant; may be given several times")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every variant")
    options = parser.parse_args(arguments)
    results = {}
    for variant in read_ablation(options.ablation):
        name = variant["name"]
        if not options.only or name in options.only:
            results[name] = measure(variant, options.ablation.parent, options)
            print(json.dumps({"variant": name, **results[name]}), file=sys.stderr, flush=True)
    print(to_table(results))


if __name__ == "__main__":
    main()
