"""What fine-tuning with default settings gains: presets on items of another domain.

python fine_tuning.py --output RUNS --captions FILE --photos FOLDER --speech FOLDER --sentences FOLDER
python fine_tuning.py --output RUNS --captions FILE --photos FOLDER --items 200 --seeds 0 --test-items 300

Every cell is one call of `fit` on that many items, without validation data and without settings, followed by an
evaluation on test items. Finished cells are kept in the output folder, so that the same command resumes. The table has
the score of the preset and, for each cell, the mean score over the seeds and, for the seed that gained least, the 95 %
bootstrap interval of the gain on the same test items.
"""

import argparse
import csv
import dataclasses
import gzip
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Rows = dict[str, list[dict[str, str]]]


@dataclasses.dataclass(frozen=True)
class Task:
    """A preset, data of another domain, and its metrics.

    Attributes:
        read: from the folders on the command line to the rows of `train` and `test`.
        options: names of the command line's options that `read` needs.
    """

    task: str
    preset: str
    metrics: tuple[str, ...]
    read: Callable[[argparse.Namespace], Rows]
    options: tuple[str, ...]

    @property
    def examples(self) -> Any:
        """The class of the task's examples, which knows its columns and metrics."""
        from attention_apps.applications import application_class

        return application_class(self.task)().parts.examples


def read_captions(options: argparse.Namespace) -> Rows:
    """COCO photos: the rows of a table of image, caption and split."""
    rows: Rows = {"train": [], "test": []}
    for row in _read_tsv(options.captions):
        image = str(options.photos.resolve() / row["image"])
        rows["train" if row["split"] == "train" else "test"].append({"image": image, "caption": row["caption"]})
    return rows


def read_speech(options: argparse.Namespace) -> Rows:
    """Read sentences; no sentence of the test is trained on."""
    rows: Rows = {"train": [], "test": []}
    for row in _read_tsv(options.speech / "manifest.tsv"):
        entry = {"audio": str(options.speech.resolve() / row["audio"]), "transcript": row["transcript"]}
        rows["train" if row["split"] == "train" else "test"].append(entry)
    tested = {row["transcript"] for row in rows["test"]}
    rows["train"] = [row for row in rows["train"] if row["transcript"] not in tested]
    return rows


def read_sentences(options: argparse.Namespace) -> Rows:
    """Sentences and their compressions."""
    rows: Rows = {}
    for name, file in (("train", "train.jsonl.gz"), ("test", "validation.jsonl.gz")):
        with gzip.open(options.sentences / file, "rt", encoding="utf-8") as lines:
            rows[name] = [{key: json.loads(line)[key] for key in ("document", "summary")} for line in lines]
    return rows


TASKS = {
    "captions": Task(
        "image_captioning", "show_attend_tell_flickr8k", ("cider",), read_captions, ("captions", "photos")
    ),
    "speech": Task("speech_recognition", "listen_attend_spell_an4", ("wer", "cer"), read_speech, ("speech",)),
    "summaries": Task(
        "text_summarization", "pointer_generator_headlines", ("rouge_2",), read_sentences, ("sentences",)
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for runs and results")
    parser.add_argument("--captions", type=Path, metavar="FILE", help="COCO captions: a TSV of image, caption, split")
    parser.add_argument("--photos", type=Path, metavar="FOLDER", help="COCO photos")
    parser.add_argument("--speech", type=Path, metavar="FOLDER", help="recordings with a manifest.tsv")
    parser.add_argument("--sentences", type=Path, metavar="FOLDER", help="train.jsonl.gz and validation.jsonl.gz")
    parser.add_argument("--items", type=_numbers, default=[50, 200, 1000], help="sizes, as 50,200 (default: all three)")
    parser.add_argument("--seeds", type=_numbers, default=[0, 1, 2], help="seeds, as 0,1 (default: 0,1,2)")
    parser.add_argument("--test-items", type=int, default=300, help="items of the evaluation (default: 300)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="not the defaults, to compare")
    options = parser.parse_args(arguments)
    names = [name for name, task in TASKS.items() if all(getattr(options, option) for option in task.options)]
    if not names:
        parser.error("name the data of at least one task")
    for name in names:
        run_task(name, TASKS[name], options)
    print("\n".join(table({name: options.output / f"{name}_{options.test_items}" for name in names})))


def run_task(name: str, task: Task, options: argparse.Namespace) -> None:
    """Runs the cells of a task that have no result yet."""
    import attention_apps

    folder = options.output / f"{name}_{options.test_items}"
    cells = [(count, seed) for seed in options.seeds for count in options.items]
    paths = {cell: folder / f"{cell[0]}_{cell[1]}.json" for cell in cells}
    rows = task.read(options)
    source = task.examples.columns[0]
    test = _draw(rows["test"], source, options.test_items, seed=1)
    manifest = _write(folder / "test.jsonl", test)
    shared = {"cache": folder / "cache", "quiet": True}
    if not (folder / "preset.json").is_file():
        _save(folder / "preset.json", attention_apps.load(task.preset).evaluate(manifest, **shared), {})
    for (count, seed), path in paths.items():
        if path.is_file():
            continue
        data = _write(folder / f"{count}_{seed}.jsonl", _draw(rows["train"], source, count, seed + 1))
        application = _with_settings(attention_apps.load(task.preset), [f"training.seed={seed}", *options.set])
        history = application.fit(data, output=folder / f"{count}_{seed}", cache=shared["cache"])[-1]
        _save(path, application.evaluate(manifest, **shared), dataclasses.asdict(history))
        scores = ", ".join(f"{metric} {100 * _metric(path, task, metric).score:.2f}" for metric in task.metrics)
        print(f"{name}, {count} items, seed {seed}: {scores}, {history.seconds / 60:.1f} minutes")


def table(folders: Mapping[str, Path]) -> Iterator[str]:
    """The lines of the table, from all results that there are in the folders of the tasks."""
    from attention_apps.metrics import bootstrap_interval

    yield "| | preset | items | fine-tuned, mean over seeds (each) | least gain (95 % interval) | minutes |"
    yield "|---|---|---|---|---|---|"
    for name, metric in [(task, metric) for task in folders for metric in TASKS[task].metrics]:
        task, folder = TASKS[name], folders[name]
        before = _metric(folder / "preset.json", task, metric)
        sign = -1 if metric in ("wer", "cer") else 1
        for count in sorted({int(path.stem.split("_")[0]) for path in folder.glob("[0-9]*_*.json")}):
            paths = sorted(folder.glob(f"{count}_*.json"))
            after = [_metric(path, task, metric) for path in paths]
            scores = [100 * result.score for result in after]
            least = min(after, key=lambda result: sign * result.score)
            low, high = (100 * bound for bound in bootstrap_interval(least, baseline=before))
            minutes = [json.loads(path.read_text())["history"]["seconds"] / 60 for path in paths]
            yield (
                f"| {metric}, `{task.preset}` | {100 * before.score:.1f} | {count:,} "
                f"| {sum(scores) / len(scores):.1f} ({', '.join(f'{score:.1f}' for score in scores)}) "
                f"| {100 * (least.score - before.score):+.1f} ({low:+.1f} to {high:+.1f}) "
                f"| {sum(minutes) / len(minutes):.1f} |"
            )


def _metric(path: Path, task: Task, metric: str) -> Any:
    """A metric of the texts that a result holds."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return task.examples.metrics(content["texts"], content["references"], content["sources"])[metric]


def _save(path: Path, evaluation: Any, history: Mapping[str, Any]) -> None:
    content = {"texts": evaluation.texts, "references": evaluation.references, "sources": evaluation.sources}
    path.write_text(json.dumps({**content, "history": history}) + "\n", encoding="utf-8")


def _draw(rows: Sequence[dict[str, str]], column: str, count: int, seed: int) -> list[dict[str, str]]:
    """All rows of some of the sources, drawn at random."""
    sources = sorted({row[column] for row in rows})
    drawn = set(random.Random(seed).sample(sources, min(count, len(sources))))
    return [row for row in rows if row[column] in drawn]


def _write(path: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _with_settings(application: Any, settings: Sequence[str]) -> Any:
    from attention_apps.training import read_config, to_dict

    return application.with_config(read_config(type(application.config), to_dict(application.config), settings))


def _read_tsv(path: Path) -> Iterator[dict[str, str]]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
