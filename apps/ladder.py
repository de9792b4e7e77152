"""Measures what each part of a recipe brings: trains its rungs one after the other and prints a table.

python apps/ladder.py apps/text_summarization/ladder.toml --data PREPARED --output LADDER [--only NAME]

A ladder is a TOML file next to a recipe's run.py: `set`, settings that all rungs have, and `[[rungs]]`, each with a
`name`, and where it differs a `config`, more settings in `set`, in `like` the rung whose settings it has as well, and
in `after` the rung whose weights it starts from; with `trains = false` those weights are measured with its settings,
and with `averaged = false` as well the last ones of that rung's training, of which no average was made.
PREPARED is a folder after `run.py prepare`. A rung that was measured before is not trained again; one that was cut off
goes on.
"""

import argparse
import json
import resource
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any


def read_ladder(path: Path) -> list[dict[str, Any]]:
    """The rungs, each with all of its settings."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    common, rungs = content.pop("set", []), content.pop("rungs", [])
    names = [rung.get("name") for rung in rungs]
    known = {"name", "config", "set", "like", "after", "trains", "averaged"}
    if content or any(not set(rung) <= known for rung in rungs):
        raise ValueError(f"{path}: a ladder has `set` and `rungs`, a rung has {', '.join(sorted(known))}")
    if not all(names) or len(set(names)) != len(names):
        raise ValueError(f"{path}: every rung must have a name of its own. Received: {names}")
    settings: dict[str, list[str]] = {}
    for rung in rungs:
        for other in (rung.get("like"), rung.get("after")):
            if other is not None and other not in settings:
                raise ValueError(f"{path}: {rung['name']!r} must come after {other!r}")
        if not rung.get("trains", True) and "after" not in rung:
            raise ValueError(f"{path}: {rung['name']!r} must say `after` which rung it is measured")
        if rung.get("trains", True) and "averaged" in rung:
            raise ValueError(f"{path}: {rung['name']!r} must have `trains = false` with `averaged`")
        settings[rung["name"]] = [*settings.get(rung.get("like"), common), *rung.get("set", [])]
    return [{"config": "config.toml", **rung, "set": settings[rung["name"]]} for rung in rungs]


def measure(rung: dict[str, Any], recipe: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The scores of a rung and the CPU minutes of its training, which are the same on a machine that is busy."""
    folder = options.output / _folder(rung["name"])
    result = folder / "result.json"
    if result.is_file():
        return json.loads(result.read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    for path in options.data.iterdir():
        if path.is_file() and not (folder / path.name).exists():
            (folder / path.name).symlink_to(path.resolve())
    settings = [part for value in [*rung["set"], *options.set] for part in ("--set", value)]
    before = (options.output / _folder(rung["after"]) / "model").resolve() if "after" in rung else None
    began = _cpu_minutes()
    if rung.get("trains", True):
        start = [] if before is None else ["--start", before]
        _run(recipe, "train", folder, "--config", recipe / rung["config"], *start, *settings)
        settings = []
    elif not (folder / "model").exists():
        if rung.get("averaged", True):
            (folder / "model").symlink_to(before)
        else:
            _save_last_weights(before, folder / "model")
    minutes = _cpu_minutes() - began
    lines = _run(recipe, "evaluate", folder, *settings).splitlines()
    printed = [json.loads(line) for line in lines if line.startswith("{")]
    figures = {"scores": printed[0], "minutes": round(minutes, 1)}
    result.write_text(json.dumps(figures) + "\n", encoding="utf-8")
    return figures


def to_table(results: dict[str, dict[str, Any]]) -> str:
    """The rungs as Markdown, figures in percent."""
    names = [name for name, value in next(iter(results.values()))["scores"].items() if isinstance(value, float)]
    lines = [f"| rung | {' | '.join(names)} | CPU minutes |", "|---|" + "---|" * (len(names) + 1)]
    for rung, result in results.items():
        scores = " | ".join(f"{100 * result['scores'][name]:.1f}" for name in names)
        lines.append(f"| {rung} | {scores} | {result['minutes']:.0f} |")
    return "\n".join(lines)


def _save_last_weights(model, output):
    """Saves a trained application with the weights that its training ended with."""
    from attention_apps.cli.tasks import load_application
    from attention_apps.training.checkpoint import CheckpointFolder
    from attention_apps.training.weight_arrays import assign_arrays

    application = load_application(str(model))
    (checkpoints,) = (model.parent / "run").glob("*/checkpoints")
    assign_arrays("model", application.model.variables, CheckpointFolder(checkpoints).load("last").arrays)
    application.save(output)


def _cpu_minutes():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) / 60


def _folder(name):
    return "".join(letter if letter.isalnum() else "_" for letter in name).strip("_")


def _run(recipe, step, folder, *arguments):
    command = [sys.executable, recipe / "run.py", step, "--output", folder, "--quiet", *arguments]
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ladder", type=Path, help="the TOML file, next to the recipe's run.py")
    parser.add_argument("--data", type=Path, required=True, help="folder after `run.py prepare`")
    parser.add_argument("--output", type=Path, required=True, help="folder of all runs")
    parser.add_argument("--only", action="append", metavar="NAME", help="this rung; may be given several times")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every rung")
    options = parser.parse_args()
    results = {}
    for rung in read_ladder(options.ladder):
        if not options.only or rung["name"] in options.only:
            results[rung["name"]] = measure(rung, options.ladder.parent, options)
            print(json.dumps({"rung": rung["name"], **results[rung["name"]]}), file=sys.stderr, flush=True)
    print(to_table(results))


if __name__ == "__main__":
    main()
