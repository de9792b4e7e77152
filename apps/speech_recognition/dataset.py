"""Speech corpora as utterances: the only code of the recipe that knows how a corpus is laid out.

manifest        manifest.tsv, .csv or .jsonl with the columns audio, transcript and, if there, speaker and split
AN4             etc/an4_train.transcription, etc/an4_train.fileids, wav/an4_clstk/fash/an251-fash-b.sph (or .raw)
LibriSpeech     train-clean-100/84/121123/84-121123.trans.txt, 84-121123-0000.flac
Common Voice    train.tsv, dev.tsv, test.tsv, clips/*.mp3
"""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attention_apps.data import Manifest
from attention_apps.preprocessing import FRAME_SECONDS, SAMPLE_RATE, loud_frames, read_audio

AN4_DEV_UTTERANCES = 100


@dataclass(frozen=True)
class Utterance:
    """What was said in a recording, and by whom."""

    audio: str
    transcript: str
    speaker: str = ""
    split: str = ""

    def read(self) -> np.ndarray:
        """The waveform, `(samples,)`; AN4's .raw files have no header, and are 16 bits, big end first."""
        if self.audio.endswith(".raw"):
            return read_audio(np.fromfile(self.audio, ">i2").astype(np.int16), SAMPLE_RATE)
        return read_audio(self.audio)


def read_corpus(path: str | Path) -> list[Utterance]:
    """The utterances of a manifest file, or of a folder in any of the layouts above."""
    path = Path(path)
    if path.is_file():
        return list(_read_manifest(path))
    for pattern, read in _LAYOUTS.items():
        found = next(path.glob(pattern), None)
        if found is not None:
            return list(read(found if read is _read_manifest else path))
    layouts = ", ".join(_LAYOUTS)
    raise ValueError(f"{path} must be a manifest or a folder that has one of: {layouts}")


def of_split(utterances: Iterable[Utterance], *splits: str) -> list[Utterance]:
    """Those of some splits; a split without any is an error."""
    utterances = list(utterances)
    known = sorted({utterance.split for utterance in utterances})
    for split in splits:
        if split not in known:
            raise ValueError(f"There is no split {split!r}. Splits found: {', '.join(known)}")
    return [utterance for utterance in utterances if utterance.split in splits]


def _read_manifest(path: Path) -> Iterator[Utterance]:
    manifest = Manifest(path, {"audio": "audio", "transcript": "transcript"}, paths=("audio",))
    for row in manifest.rows():
        yield Utterance(row["audio"], row["transcript"], row.values.get("speaker", ""), row.values.get("split", ""))


def _read_an4(folder: Path) -> Iterator[Utterance]:
    """The training part as train_dev, its first 100 by speaker, and train_nodev, as others divide it; and test."""
    training = sorted(_an4_part(folder, "train"), key=lambda utterance: (utterance.speaker, Path(utterance.audio).stem))
    for number, utterance in enumerate(training):
        split = "train_dev" if number < AN4_DEV_UTTERANCES else "train_nodev"
        yield Utterance(utterance.audio, utterance.transcript, utterance.speaker, split)
    yield from _an4_part(folder, "test")


def _an4_part(folder: Path, part: str) -> Iterator[Utterance]:
    names = (folder / "etc" / f"an4_{part}.fileids").read_text().split()
    lines = (folder / "etc" / f"an4_{part}.transcription").read_text().splitlines()
    for name, line in zip(names, lines, strict=True):
        text = re.fullmatch(r"(?:<s> )?(.*?)(?: </s>)? \((.+)\)", line.strip())
        if text is None or text[2] != Path(name).name:
            raise ValueError(f"an4_{part}.transcription has a line that is not of {name}. Received: {line}")
        audio = next(folder.glob(f"wav/{name}.*"), None)
        if audio is None:
            raise FileNotFoundError(f"There is no recording {folder}/wav/{name}.sph or .raw")
        yield Utterance(str(audio), text[1], Path(name).parent.name, part)


def _read_librispeech(folder: Path) -> Iterator[Utterance]:
    for file in sorted(folder.glob("*/*/*/*.trans.txt")):
        for line in file.read_text(encoding="utf-8").splitlines():
            name, _, transcript = line.partition(" ")
            audio = str(file.with_name(f"{name}.flac"))
            yield Utterance(audio, transcript, file.parents[1].name, file.parents[2].name)


def _read_common_voice(folder: Path) -> Iterator[Utterance]:
    for split in ("train", "dev", "test"):
        with open(folder / f"{split}.tsv", encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                audio = str(folder / "clips" / row["path"])
                yield Utterance(audio, row["sentence"], row["client_id"], split)


_LAYOUTS: dict[str, Callable[[Path], Iterator[Utterance]]] = {
    "manifest.*": _read_manifest,
    "etc/an4_train.transcription": _read_an4,
    "*/*/*/*.trans.txt": _read_librispeech,
    "clips": _read_common_voice,
}


@dataclass(frozen=True)
class JoinedUtterance:
    """Recordings of one speaker, one after the other, with pauses before, between and after them."""

    parts: tuple[Utterance, ...]
    pauses: tuple[float, ...]
    seed: int

    @property
    def transcript(self) -> str:
        return " ".join(part.transcript for part in self.parts)

    def read(self) -> np.ndarray:
        """The waveform, `(samples,)`."""
        return self.read_with_times()[0]

    def read_with_times(self) -> tuple[np.ndarray, list[tuple[float, float]]]:
        """The waveform, and the seconds in which the sound of each part begins and ends."""
        waveforms = [part.read() for part in self.parts]
        random = np.random.default_rng(self.seed)
        # Rooms are never quite silent: 35 to 60 decibels below the voice.
        level = np.sqrt(np.mean(np.square(np.concatenate(waveforms)))) * 10 ** (-random.uniform(35, 60) / 20)
        pieces, times, position = [], [], 0
        for pause, waveform in zip(self.pauses, [*waveforms, None], strict=True):
            pieces.append(random.normal(0, level, round(pause * SAMPLE_RATE)).astype(np.float32))
            position += len(pieces[-1])
            if waveform is not None:
                pieces.append(waveform)
                first, last = _sound(waveform)
                times.append((position / SAMPLE_RATE + first, position / SAMPLE_RATE + last))
                position += len(waveform)
        return np.concatenate(pieces), times


def _sound(waveform: np.ndarray) -> tuple[float, float]:
    """The seconds in which the sound of a recording begins and ends, without what is quiet before and after it."""
    seconds = len(waveform) / SAMPLE_RATE
    is_loud, _ = loud_frames(waveform[np.newaxis], np.array([len(waveform)]))
    loud = np.flatnonzero(is_loud[0])
    if not len(loud):
        return 0.0, seconds
    first, last = float(loud[0] * FRAME_SECONDS), float((loud[-1] + 1) * FRAME_SECONDS)
    return first, seconds if seconds - last < FRAME_SECONDS else last


def join_utterances(
    utterances: Sequence[Utterance],
    count: int,
    seed: int,
    lengths: tuple[int, int] = (2, 8),
    single: float = 0.15,
    pause: float = 0.4,
) -> list[JoinedUtterance]:
    """Makes `count` strings of recordings, those of spoken digits for example, each of one speaker.

    Args:
        lengths: the fewest and the most recordings of a string.
        single: the share of single recordings, which are strings too.
        pause: the longest pause, in seconds; short ones are more frequent.
    """
    random = np.random.default_rng(seed)
    by_speaker: dict[str, list[Utterance]] = {}
    for utterance in utterances:
        by_speaker.setdefault(utterance.speaker, []).append(utterance)
    speakers = sorted(by_speaker)
    joined = []
    for _ in range(count):
        of_speaker = by_speaker[speakers[random.integers(len(speakers))]]
        size = 1 if random.random() < single else int(random.integers(lengths[0], lengths[1] + 1))
        parts = tuple(of_speaker[index] for index in random.integers(len(of_speaker), size=size))
        pauses = tuple(float(seconds) for seconds in pause * random.random(size + 1) ** 2)
        joined.append(JoinedUtterance(parts, pauses, int(random.integers(2**31))))
    return joined
