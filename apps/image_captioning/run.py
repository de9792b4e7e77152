"""Trains and measures an image captioner: prepare -> train -> evaluate -> export.

python run.py prepare  --data CORPUS --output RUN
python run.py train    --output RUN [--config config.toml] [--start PRESET] [--set training.batch_size=16] [--restart]
python run.py evaluate --output RUN [--split test] [--set decoding.beam_size=8]
python run.py export   --output RUN [--set encoder.mirrored=false]

`prepare` reads a corpus in any layout that dataset.py knows. `train` goes through the stages of the configuration and
goes on where it stopped; each stage starts from the best one before it, by CIDEr on dev, or from the one that its
`start` names, and RUN/ladder.json has the score of each. `--start` begins with the weights of a preset: hard.toml with
those of a soft captioner. `export` writes the preset, RUN/preset, in half precision.
"""

import argparse
import itertools
import json
from dataclasses import replace
from pathlib import Path

import dataset

HERE = Path(__file__).parent
METRIC = "cider"


def prepare(options: argparse.Namespace) -> None:
    if options.data is None:
        raise ValueError("`--data` must name the folder of the corpus.")
    for split in dataset.SPLITS:
        path = _manifest(options, split)
        photos, captions, left_out = dataset.write_pairs(dataset.read_corpus(options.data, split), path)
        print(f"{split}: {photos:,} photos, {captions:,} captions, {left_out:,} left out")
        if not photos:
            path.unlink()


def train(options: argparse.Namespace) -> None:
    from stages import read_recipe

    recipe = read_recipe(options.config, options.set)
    best, best_score, ladder = options.start, float("-inf"), []
    for stage in recipe.stages:
        folder = options.output / "stages" / stage.name
        if options.restart or not _is_done(stage, folder):
            start = options.output / "stages" / stage.start / "model" if stage.start else best
            _train_stage(stage, folder, start, options)
        scores = _read_json(folder / "scores.json")
        is_best = scores[METRIC] > best_score
        ladder.append({"stage": stage.name, **scores, "kept": is_best})
        print(json.dumps(ladder[-1]))
        if is_best:
            best, best_score = folder / "model", scores[METRIC]
    captioner, rows = _choose_search(_load(best), recipe.search, options)
    _write_json(options.output / "ladder.json", ladder + rows)
    captioner.save(options.output / "model")


def evaluate(options: argparse.Namespace) -> None:
    evaluation = _load_trained(options).evaluate(
        _manifest(options, options.split), cache=options.output / "cache", quiet=options.quiet
    )
    print(json.dumps({name: round(result.score, 4) for name, result in evaluation.metrics.items()}))
    with (options.output / "written.jsonl").open("w", encoding="utf-8") as file:
        for source, references, text in zip(evaluation.sources, evaluation.references, evaluation.texts, strict=True):
            entry = {"image": source, "captions": references, "written": text}
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def export(options: argparse.Namespace) -> None:
    card = options.card.read_text(encoding="utf-8")
    _load_trained(options).save(options.output / "preset", card=card, half_precision=True)
    print(f"{options.output / 'preset'}")


def _is_done(stage, folder):
    """Whether a stage was trained before; raises an error where it was another of the same name."""
    from attention_apps.training.config import to_dict

    if not (folder / "scores.json").is_file():
        return False
    before = _read_json(folder / "model" / "config.json")["config"]
    if before != json.loads(json.dumps(to_dict(stage.config))):
        raise ValueError(f"{folder} was trained with another configuration. Use --restart, or another --output.")
    return True


def _train_stage(stage, folder, start, options):
    """Trains a stage from the preset `start`, or from the beginning, and measures it."""
    import keras

    from attention_apps import ImageCaptioner

    (folder / "scores.json").unlink(missing_ok=True)
    keras.utils.set_random_seed(stage.config.training.seed)
    captioner = _load(start).with_config(stage.config) if start else ImageCaptioner(stage.config)
    captioner.fit(
        _manifest(options, "train"),
        _manifest(options, "dev"),
        output=folder / "run",
        cache=options.output / "cache",
        restart=options.restart,
        quiet=options.quiet,
    )
    captioner.save(folder / "model")
    _write_json(folder / "scores.json", _measure(captioner, options))


def _choose_search(captioner, search, options):
    """The captioner with the settings of the search that are best on dev, and its row of the ladder."""
    # The backbone learns no more, so that its features are computed once for all settings.
    encoder = replace(captioner.config.encoder, trainable_from=None)
    captioner = captioner.with_config(replace(captioner.config, encoder=encoder, augmented_views=0))
    if not search:
        return captioner, []
    choices = [
        replace(captioner.config.decoding, **dict(zip(search, values, strict=True)))
        for values in itertools.product(*search.values())
    ]
    scores = [_measure(captioner, options, decoding) for decoding in choices]
    place = max(range(len(choices)), key=lambda index: scores[index][METRIC])
    chosen = {name: getattr(choices[place], name) for name in search}
    print(json.dumps({"stage": "search", **scores[place], **chosen}))
    captioner.config = replace(captioner.config, decoding=choices[place])
    return captioner, [{"stage": "search", **scores[place], **chosen, "kept": True}]


def _measure(captioner, options, decoding=None):
    evaluation = captioner.evaluate(
        _manifest(options, "dev"), cache=options.output / "cache", options=decoding, quiet=options.quiet
    )
    return {name: round(result.score, 4) for name, result in evaluation.metrics.items()}


def _manifest(options, split):
    return options.output / f"{split}.jsonl"


def _load(preset):
    from attention_apps import ImageCaptioner

    return ImageCaptioner.load(preset) if Path(preset).is_dir() else ImageCaptioner.from_preset(str(preset))


def _load_trained(options):
    """What `train` has saved, under the settings of `--set`."""
    from attention_apps.training.config import read_config, to_dict

    captioner = _load(options.output / "model")
    if not options.set:
        return captioner
    return captioner.with_config(read_config(type(captioner.config), to_dict(captioner.config), options.set))


def _read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


def _write_json(path, content):
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "train", "evaluate", "export"))
    parser.add_argument("--data", type=Path, help="folder of the corpus, for prepare")
    parser.add_argument("--output", type=Path, required=True, help="folder of the run")
    parser.add_argument("--config", type=Path, default=HERE / "config.toml", help="the recipe, for train")
    parser.add_argument("--start", metavar="NAME|FOLDER", help="a preset to start from, for train")
    parser.add_argument("--split", choices=("dev", "test"), default="dev", help="what is measured, for evaluate")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="overrides the configuration")
    parser.add_argument("--card", type=Path, default=HERE / "README.md", help="what goes with the preset, for export")
    parser.add_argument("--restart", action="store_true", help="train from the beginning")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    {"prepare": prepare, "train": train, "evaluate": evaluate, "export": export}[options.step](options)


if __name__ == "__main__":
    main()
