"""Writes recordings that a recognizer of English must not be sure of.

    apt-get install espeak-ng
    python foreign.py OUTPUT

OUTPUT gets speech in other languages by espeak-ng, noise, tones and melodies, and `languages.tsv` and `noises.tsv`, the
manifests of both, for `../confidence.py`.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

from attention_apps.preprocessing import SAMPLE_RATE, read_audio

sys.path.insert(0, str(Path(__file__).parents[1]))

from other_languages import SENTENCES

# Variants of espeak-ng's voice, with words a minute.
VOICES = (("", 150), ("+m3", 140), ("+f2", 165))
NOISE_SECONDS = (1.3, 3.1, 5.7)
NOISE_LEVELS = (0.001, 0.01, 0.1)


def speak(text: str, language: str, variant: str, speed: int) -> np.ndarray:
    """The waveform of a text, spoken by espeak-ng."""
    command = ["espeak-ng", "-v", f"{language}{variant}", "-s", str(speed), "--stdout", text]
    return read_audio(subprocess.run(command, check=True, capture_output=True).stdout)


def _colored(exponent: float) -> Callable[[int, np.random.Generator], np.ndarray]:
    def make(size: int, random: np.random.Generator) -> np.ndarray:
        spectrum = np.fft.rfft(random.normal(size=size))
        shaped = np.fft.irfft(spectrum / np.maximum(np.arange(len(spectrum)), 1) ** (exponent / 2), size)
        return shaped / np.sqrt(np.mean(np.square(shaped)))

    return make


def _bursts(size: int, random: np.random.Generator) -> np.ndarray:
    rate, phase = random.uniform(1, 4), random.uniform(0, 6)
    return _colored(1.0)(size, random) * (np.sin(2 * np.pi * rate * np.arange(size) / SAMPLE_RATE + phase) > 0)


def _tone(size: int, random: np.random.Generator) -> np.ndarray:
    return np.sin(2 * np.pi * random.uniform(100, 3000) * np.arange(size) / SAMPLE_RATE)


def _melody(size: int, random: np.random.Generator) -> np.ndarray:
    """Notes of a plucked string with some overtones, of a quarter of a second each."""
    time = np.arange(SAMPLE_RATE // 4) / SAMPLE_RATE
    notes = []
    for pitch in 110 * 2 ** (random.integers(0, 36, -(-size // len(time))) / 12):
        notes.append(sum(np.sin(2 * np.pi * pitch * order * time) / order for order in range(1, 6)) * np.exp(-5 * time))
    return np.concatenate(notes)[:size]


NOISES = {
    "white": _colored(0.0),
    "pink": _colored(1.0),
    "brown": _colored(2.0),
    "bursts": _bursts,
    "tone": _tone,
    "melody": _melody,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    rows = []
    for language, text in SENTENCES.items():
        for number, (variant, speed) in enumerate(VOICES):
            for line, sentence in enumerate(text.splitlines()):
                name = f"{language}_{number}_{line}.flac"
                soundfile.write(output / name, speak(sentence, language, variant, speed), SAMPLE_RATE)
                rows.append((name, sentence))
    _write(output / "languages.tsv", rows)
    random, rows = np.random.default_rng(0), []
    for kind, make in NOISES.items():
        for seconds in NOISE_SECONDS:
            for level in NOISE_LEVELS:
                name = f"{kind}_{seconds}_{level}.flac"
                noise = np.clip(level * make(round(seconds * SAMPLE_RATE), random), -1, 1)
                soundfile.write(output / name, noise, SAMPLE_RATE)
                rows.append((name, kind))
    _write(output / "noises.tsv", rows)


def _write(path: Path, rows: list[tuple[str, str]]) -> None:
    lines = ["\t".join(row) for row in [("audio", "transcript"), *rows]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{path}: {len(rows)} recordings")


if __name__ == "__main__":
    main()
