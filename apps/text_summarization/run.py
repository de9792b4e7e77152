"""Trains and measures a summarizer: prepare -> train -> evaluate -> export.

python run.py prepare  --data CORPUS --output RUN
python run.py train    --output RUN [--config config.toml] [--start FOLDER] [--set training.epochs=1] [--restart]
python run.py evaluate --output RUN [--set decoding.beam_size=8]
python run.py export   --output RUN

`prepare` reads a corpus in any layout that dataset.py knows; `train` goes on where it stopped; `export` writes the
preset, RUN/preset, in half precision.
"""

import argparse
import json
from itertools import islice
from pathlib import Path

import dataset

HERE = Path(__file__).parent
# Of the validation split, those that training is watched by; `evaluate` takes all.
WATCHED_PAIRS = 500


def prepare(options: argparse.Namespace) -> None:
    if options.data is None:
        raise ValueError("`--data` must name the folder of the corpus.")
    for split in dataset.SPLITS:
        pairs = dataset.read_corpus(options.data, split)
        written, blank = dataset.write_pairs(pairs, options.output / f"{split}.jsonl.gz")
        print(f"{split}: {written:,} pairs, {blank:,} without text left out")
    part = islice(dataset.read_corpus(options.data, "validation"), WATCHED_PAIRS)
    dataset.write_pairs(part, options.output / "watched.jsonl.gz")


def train(options: argparse.Namespace) -> None:
    from attention_apps.applications.summarizer_config import SummarizerConfig
    from attention_apps.applications.text_summarizer import TextSummarizer
    from attention_apps.training.config import read_config

    config, output = read_config(SummarizerConfig, options.config, options.set), options.output
    summarizer = TextSummarizer.load(options.start).with_config(config) if options.start else TextSummarizer(config)
    summarizer.fit(
        output / "train.jsonl.gz",
        output / "watched.jsonl.gz",
        output=output / "run",
        restart=options.restart,
        quiet=options.quiet,
    )
    summarizer.save(output / "model")


def evaluate(options: argparse.Namespace) -> None:
    evaluation = _load(options).evaluate(options.output / "validation.jsonl.gz", quiet=options.quiet)
    scores = {name: round(result.score, 4) for name, result in evaluation.metrics.items()}
    print(json.dumps(scores))
    with (options.output / "written.jsonl").open("w", encoding="utf-8") as file:
        for source, references, text in zip(evaluation.sources, evaluation.references, evaluation.texts, strict=True):
            entry = {"document": source, "summary": references[0], "written": text}
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def export(options: argparse.Namespace) -> None:
    card = options.card.read_text(encoding="utf-8")
    _load(options).save(options.output / "preset", card=card, half_precision=True)
    print(f"{options.output / 'preset'}")


def _load(options):
    from attention_apps.applications.text_summarizer import TextSummarizer
    from attention_apps.training.config import read_config, to_dict

    summarizer = TextSummarizer.load(options.output / "model")
    if not options.set:
        return summarizer
    return summarizer.with_config(read_config(type(summarizer.config), to_dict(summarizer.config), options.set))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "train", "evaluate", "export"))
    parser.add_argument("--data", type=Path, help="folder of the corpus, for prepare")
    parser.add_argument("--output", type=Path, required=True, help="folder of the run")
    parser.add_argument("--config", type=Path, default=HERE / "config.toml", help="configuration, for train")
    parser.add_argument("--start", metavar="FOLDER", help="a preset to start from, for train")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="overrides the configuration")
    parser.add_argument("--card", type=Path, default=HERE / "README.md", help="what goes with the preset, for export")
    parser.add_argument("--restart", action="store_true", help="train from the beginning")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    {"prepare": prepare, "train": train, "evaluate": evaluate, "export": export}[options.step](options)


if __name__ == "__main__":
    main()
