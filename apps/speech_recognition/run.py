"""Trains and measures a speech recognizer: prepare -> train -> evaluate -> export.

python run.py prepare  --data AN4 --digits AUDIOMNIST --digits FSDD --synthetic 8000 --strings 4000 --output RUN
python run.py train    --output RUN [--config config.toml] [--start PRESET] [--set training.epochs=1] [--restart]
python run.py evaluate --output RUN [--set decoding.beam_size=8]
python run.py export   --output RUN

`prepare` reads corpora in any layout that dataset.py knows, and writes manifests, with `flite`'s recordings and joined
digits next to them; without `--digits` and `--synthetic` it is the corpus alone, and `train` leaves the other groups
out of the mixture. `train` goes on where it stopped, and so would `attention-apps train speech_recognition --data
RUN/train.tsv --validation RUN/validation.tsv`. `export` writes the preset, RUN/preset, in half precision.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import dataset
import numpy as np
import soundfile
import synthesis

from attention_apps.preprocessing.audio import SAMPLE_RATE

HERE = Path(__file__).parent
COLUMNS = ("audio", "transcript", "speaker", "group")
# Joined strings of the digit corpora's own dev speakers, which are only measured.
DEV_STRINGS = 300
SEED = 11
# What a preset says of training is for whoever trains it further, on data of their own.
FINE_TUNING = (
    "mixture=[]",
    "short_epochs=0",
    "ctc.alone_epochs=0",
    "augmentation.spectrum_from_epoch=0",
    "training.short_first_epochs=0",
    "training.learning_rate=3e-4",
    "training.warmup_steps=100",
)


def prepare(options: argparse.Namespace) -> None:
    if options.data is None:
        raise ValueError("`--data` must name the folder or the manifest of the corpus.")
    output = options.output
    (output / "audio").mkdir(parents=True, exist_ok=True)
    corpus = dataset.read_corpus(options.data)
    rows = _rows(dataset.of_split(corpus, options.train_split), "speech", output)
    digits = [utterance for folder in options.digits for utterance in dataset.read_corpus(folder)]
    spoken = [utterance for utterance in digits if utterance.split == "train"]
    rows += _rows(spoken, "digits", output)
    if spoken:
        rows += _join(spoken, options.strings, output / "audio" / "strings", "strings")
    rows += _synthesise(options.synthetic, output / "audio" / "synthetic", options.threads)
    _write(output / "train.tsv", rows)
    held_out = dataset.of_split(corpus, options.validation_split)
    _write(output / "validation.tsv", _rows(held_out, "speech", output))
    unseen = [utterance for utterance in digits if utterance.split == "dev"]
    if unseen:
        _write(output / "dev_digits.tsv", _rows(unseen, "digits", output))
        _write(output / "dev_strings.tsv", _join(unseen, DEV_STRINGS, output / "audio" / "dev_strings", "strings"))


def _rows(utterances: Iterable[dataset.Utterance], group: str, output: Path) -> list[Sequence[str]]:
    return [
        (str(_as_file(utterance, output)), utterance.transcript, utterance.speaker, group) for utterance in utterances
    ]


def _as_file(utterance: dataset.Utterance, output: Path) -> Path:
    """The recording, or, where it has no header to say what it is, a copy that has."""
    if not utterance.audio.endswith(".raw"):
        return Path(utterance.audio).resolve()
    path = (output / "audio" / Path(utterance.audio).name).with_suffix(".flac").resolve()
    soundfile.write(path, utterance.read(), SAMPLE_RATE)
    return path


def _join(utterances: list[dataset.Utterance], count: int, folder: Path, group: str) -> list[Sequence[str]]:
    """Strings of spoken digits, as files with the times of their parts next to them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, times = [], {}
    for number, joined in enumerate(dataset.join_utterances(utterances, count, SEED, single=0.0)):
        path = (folder / f"{number:05}.flac").resolve()
        waveform, of_parts = joined.read_with_times()
        soundfile.write(path, np.clip(waveform, -1, 1), SAMPLE_RATE)
        rows.append((str(path), joined.transcript, joined.parts[0].speaker, group))
        times[path.name] = of_parts
    (folder / "times.json").write_text(json.dumps(times), encoding="utf-8")
    return rows


def _synthesise(count: int, folder: Path, threads: int) -> list[Sequence[str]]:
    texts = synthesis.spoken_texts(count, SEED)
    paths = synthesis.speak_all(texts, folder, threads) if count else []
    # Two texts that sound alike are one file.
    rows = {path: (str(path.resolve()), text.transcript, text.voice, "synthetic") for path, text in zip(paths, texts)}
    return list(rows.values())


def _write(path: Path, rows: list[Sequence[str]]) -> None:
    # A tab or the end of a line inside of a transcript would end its field.
    lines = ["\t".join([audio, *(" ".join(text.split()) for text in texts)]) for audio, *texts in [COLUMNS, *rows]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    groups = sorted({row[-1] for row in rows})
    counts = ", ".join(f"{sum(row[-1] == group for row in rows):,} {group}" for group in groups)
    print(f"{path.name}: {counts}")


def train(options: argparse.Namespace) -> None:
    from attention_apps.applications.recognizer_config import RecognizerConfig
    from attention_apps.applications.speech_recognizer import SpeechRecognizer
    from attention_apps.training.config import read_config

    config, output = read_config(RecognizerConfig, options.config, options.set), options.output
    config = _with_groups_of(output / "train.tsv", config)
    recognizer = _preset(options.start).with_config(config) if options.start else SpeechRecognizer(config)
    recognizer.fit(
        output / "train.tsv",
        output / "validation.tsv",
        output=output / "run",
        cache=output / "cache",
        restart=options.restart,
        quiet=options.quiet,
    )
    recognizer.save(output / "model")


def _with_groups_of(manifest: Path, config):
    """The configuration without the shares of its mixture that were not prepared."""
    _, *rows = manifest.read_text(encoding="utf-8").splitlines()
    groups = {row.split("\t")[-1] for row in rows}
    missing = {share.group for share in config.mixture} - groups
    if missing:
        print(f"left out of the mixture, as {manifest} has none of them: {', '.join(sorted(missing))}")
    return replace(config, mixture=tuple(share for share in config.mixture if share.group in groups))


def evaluate(options: argparse.Namespace) -> None:
    recognizer = _load(options)
    for name in ("validation", "dev_strings", "dev_digits"):
        manifest = options.output / f"{name}.tsv"
        if not manifest.exists():
            continue
        evaluation = recognizer.evaluate(manifest, cache=options.output / "cache", quiet=options.quiet)
        scores = {metric: round(result.score, 4) for metric, result in evaluation.metrics.items()}
        print(json.dumps({"data": name, **scores}))
        with (options.output / f"{name}_written.jsonl").open("w", encoding="utf-8") as file:
            rows = zip(evaluation.sources, evaluation.references, evaluation.texts, strict=True)
            for source, references, text in rows:
                entry = {"audio": source, "transcript": references[0], "written": text}
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")
    if (options.output / "dev_strings.tsv").exists():
        print(json.dumps(_measure_times(recognizer, dataset.read_corpus(options.output / "dev_strings.tsv"))))


def _measure_times(recognizer, strings: list[dataset.Utterance]) -> dict[str, float]:
    """How far the begins and ends of words are from the truth, in the strings that were understood."""
    errors: list[float] = []
    transcripts = recognizer.transcripts(string.audio for string in strings)
    for string, transcript in zip(strings, transcripts, strict=True):
        path = Path(string.audio)
        times = json.loads((path.parent / "times.json").read_text(encoding="utf-8"))[path.name]
        if transcript.text == string.transcript:
            heard = [(word.start, word.end) for word in transcript.words]
            errors += np.abs(np.subtract(heard, times)).ravel().tolist()
    if not errors:
        return {"boundaries": 0}
    median, late = np.quantile(errors, [0.5, 0.9])
    return {"boundaries": len(errors), "median_error_ms": round(1000 * median), "90_percent_ms": round(1000 * late)}


def export(options: argparse.Namespace) -> None:
    from attention_apps.training.config import read_config, to_dict

    recognizer = _load(options)
    recognizer.config = read_config(type(recognizer.config), to_dict(recognizer.config), FINE_TUNING)
    card = options.card.read_text(encoding="utf-8")
    recognizer.save(options.output / "preset", card=card, half_precision=True)
    print(f"{options.output / 'preset'}")


def _load(options):
    from attention_apps.applications.speech_recognizer import SpeechRecognizer
    from attention_apps.training.config import read_config, to_dict

    recognizer = SpeechRecognizer.load(options.output / "model")
    if not options.set:
        return recognizer
    return recognizer.with_config(read_config(type(recognizer.config), to_dict(recognizer.config), options.set))


def _preset(name):
    from attention_apps.applications.speech_recognizer import SpeechRecognizer

    return SpeechRecognizer.load(name) if Path(name).is_dir() else SpeechRecognizer.from_preset(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "train", "evaluate", "export"))
    parser.add_argument("--data", type=Path, help="folder or manifest of the corpus, for prepare")
    parser.add_argument("--train-split", default="train_nodev", help="of the corpus (default: %(default)s)")
    parser.add_argument("--validation-split", default="train_dev", help="of the corpus (default: %(default)s)")
    parser.add_argument(
        "--digits", type=Path, action="append", default=[], help="a corpus of single digits; may be given several times"
    )
    parser.add_argument("--strings", type=int, default=4000, help="digit strings to join (default: %(default)s)")
    parser.add_argument("--synthetic", type=int, default=0, help="texts for flite to speak (default: none)")
    parser.add_argument("--threads", type=int, default=1, help="for flite (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="folder of the run")
    parser.add_argument("--config", type=Path, default=HERE / "config.toml", help="configuration, for train")
    parser.add_argument("--start", metavar="NAME|FOLDER", help="a preset to start from, for train")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="overrides the configuration")
    parser.add_argument("--card", type=Path, default=HERE / "README.md", help="what goes with the preset, for export")
    parser.add_argument("--restart", action="store_true", help="train from the beginning")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    {"prepare": prepare, "train": train, "evaluate": evaluate, "export": export}[options.step](options)


if __name__ == "__main__":
    main()
