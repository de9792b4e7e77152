"""Trains and scores a speech recognizer: prepare -> train -> evaluate -> export.

python run.py prepare  --data AN4 --digits AUDIOMNIST --digits FSDD --synthetic 8000 --strings 4000 --output RUN
python run.py train    --output RUN [--config config.toml] [--start PRESET] [--set training.epochs=1] [--restart]
python run.py evaluate --output RUN [--set decoding.beam_size=8]
python run.py export   --output RUN

`prepare` reads corpora in any layout that dataset.py knows, and writes manifests, with `flite`'s recordings and joined
digits next to them; without `--digits` and `--synthetic` it is the corpus alone, and `train` leaves the other groups
out of the mixture. `train` resumes where it stopped. `export` writes the preset, RUN/preset, in 8 bits.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dataset
import numpy as np
import soundfile
import synthesis

from attention_apps.preprocessing import SAMPLE_RATE

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from recipe import Recipe  # noqa: E402 - next to the folders of the recipes

COLUMNS = ("audio", "transcript", "speaker", "group")
# Joined strings of the digit corpora's own dev speakers, which are only measured.
DEV_STRINGS = 300
SEED = 11
# What a preset says of training is for whoever trains it further, on data of their own.
FINE_TUNING = (
    "mixture=[]",
    "short_epochs=0",
    "ctc.ctc_only_epochs=0",
    "augmentation.spectrum_from_epoch=0",
    "training.short_first_epochs=0",
    "training.learning_rate=3e-4",
    "training.warmup_steps=100",
)


def prepare(options: argparse.Namespace) -> None:
    output = options.output
    (output / "audio").mkdir(parents=True, exist_ok=True)
    corpus = dataset.read_corpus(options.data)
    rows = _rows(dataset.of_split(corpus, options.train_split), "speech", output)
    digits = [utterance for folder in options.digits for utterance in dataset.read_corpus(folder)]
    spoken = [utterance for utterance in digits if utterance.split == "train"]
    rows += _rows(spoken, "digits", output)
    if spoken:
        rows += _join(spoken, options.strings, output / "audio" / "strings", "strings")
    rows += _synthesize(options.synthetic, output / "audio" / "synthetic", options.threads)
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


def _synthesize(count: int, folder: Path, threads: int) -> list[Sequence[str]]:
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


def adapt(config: Any, options: argparse.Namespace) -> Any:
    """The configuration without the shares of its mixture that were not prepared."""
    manifest = options.output / "train.tsv"
    _, *rows = manifest.read_text(encoding="utf-8").splitlines()
    groups = {row.split("\t")[-1] for row in rows}
    missing = {share.group for share in config.mixture} - groups
    if missing:
        print(f"left out of the mixture, because {manifest} has none of them: {', '.join(sorted(missing))}")
    return replace(config, mixture=tuple(share for share in config.mixture if share.group in groups))


def after_evaluate(recognizer: Any, options: argparse.Namespace) -> None:
    """Prints how exact the times of words are on joined digits, whose times are known."""
    if (options.output / "dev_strings.tsv").exists():
        print(json.dumps(_measure_times(recognizer, dataset.read_corpus(options.output / "dev_strings.tsv"))))


def _measure_times(recognizer, strings: list[dataset.Utterance]) -> dict[str, float]:
    """The error of the start and end times of words, in the strings that were transcribed without error."""
    errors: list[float] = []
    transcripts = recognizer.run(string.audio for string in strings)
    for string, transcript in zip(strings, transcripts, strict=True):
        path = Path(string.audio)
        times = json.loads((path.parent / "times.json").read_text(encoding="utf-8"))[path.name]
        if _plain(transcript.text) == _plain(string.transcript):
            heard = [(word.start, word.end) for word in transcript.words]
            errors += np.abs(np.subtract(heard, times)).ravel().tolist()
    if not errors:
        return {"boundaries": 0}
    median, late = np.quantile(errors, [0.5, 0.9])
    return {"boundaries": len(errors), "median_error_ms": round(1000 * median), "90_percent_ms": round(1000 * late)}


def _plain(text: str) -> str:
    return re.sub(r"[^\w\s']", "", text).lower()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--train-split", default="train_nodev", help="of the corpus (default: %(default)s)")
    parser.add_argument("--validation-split", default="train_dev", help="of the corpus (default: %(default)s)")
    parser.add_argument(
        "--digits", type=Path, action="append", default=[], help="a corpus of single digits; may be given several times"
    )
    parser.add_argument("--strings", type=int, default=4000, help="digit strings to join (default: %(default)s)")
    parser.add_argument("--synthetic", type=int, default=0, help="texts for flite to speak (default: none)")
    parser.add_argument("--threads", type=int, default=1, help="for flite (default: %(default)s)")


RECIPE = Recipe(
    task="speech_recognition",
    folder=HERE,
    prepare=prepare,
    train="train.tsv",
    validation="validation.tsv",
    evaluated=("validation.tsv", "dev_strings.tsv", "dev_digits.tsv"),
    add_arguments=add_arguments,
    adapt=adapt,
    final_settings=FINE_TUNING,
    after_evaluate=after_evaluate,
)

if __name__ == "__main__":
    RECIPE.main(__doc__)
