"""Synthetic speech for training: texts of the grammar, spoken by the voices of `flite`.

`flite` is a small program (Debian and Ubuntu: `apt-get install flite`). What it has said once is kept in a folder.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from grammar import random_text

from attention_apps.preprocessing import SAMPLE_RATE, change_speed, read_audio

VOICES = ("awb", "rms", "slt", "kal16")
# The range of speaking rates, and of pitches: the second makes larger and smaller speakers of four voices.
SPEEDS = (0.8, 1.35)
PITCHES = (0.85, 1.25)
PAUSE_PROBABILITY = 0.3


@dataclass(frozen=True)
class SpokenText:
    """A text and how it is said.

    Args:
        spoken: the text as `flite` reads it, with commas for pauses.
        speed: of speaking, with the pitch as it is.
        pitch: factor of all frequencies, with the speed as it is.
    """

    transcript: str
    spoken: str
    voice: str
    speed: float
    pitch: float

    @property
    def file_name(self) -> str:
        """Depends on all that makes a difference to the sound."""
        key = f"{self.spoken}|{self.voice}|{self.speed:.2f}|{self.pitch:.2f}"
        return f"{hashlib.sha256(key.encode()).hexdigest()[:20]}.flac"


def random_spoken_text(random: np.random.Generator) -> SpokenText:
    """A text of the grammar with a voice, a speed, a pitch and perhaps pauses between words."""
    transcript = random_text(random)
    words = transcript.split()
    pauses = random.random(len(words)) < (0.5 if random.random() < PAUSE_PROBABILITY else 0.0)
    spoken = " ".join(f"{word}," if pause else word for word, pause in zip(words, pauses, strict=True))
    voice = VOICES[random.integers(len(VOICES))]
    return SpokenText(transcript, spoken, voice, round(random.uniform(*SPEEDS), 2), round(random.uniform(*PITCHES), 2))


def spoken_texts(count: int, seed: int) -> list[SpokenText]:
    """`count` texts; text i of a seed is the same however many are asked for."""
    return [random_spoken_text(np.random.default_rng([seed, number])) for number in range(count)]


def speak_all(texts: Sequence[SpokenText], folder: str | Path, threads: int = 1) -> list[Path]:
    """The recordings of some texts in `folder`; those that are there already are not made again."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda text: speak(text, folder), texts))


def speak(text: SpokenText, folder: Path) -> Path:
    """Has `flite` say one text, and gives the file."""
    path = folder / text.file_name
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            # Slower by as much as raising the pitch will make it faster.
            wave = _run_flite(text, Path(temporary) / "said.wav", stretch=text.pitch / text.speed)
            waveform = change_speed(read_audio(wave), text.pitch)
            finished = Path(temporary) / path.name
            soundfile.write(finished, np.clip(waveform, -1, 1), SAMPLE_RATE)
            os.replace(finished, path)
    return path


def _run_flite(text: SpokenText, path: Path, stretch: float) -> Path:
    if shutil.which("flite") is None:
        raise FileNotFoundError("There is no program `flite`, which speaks the training texts: apt-get install flite")
    options = ["-voice", text.voice, "--setf", f"duration_stretch={stretch:.3f}", "-o", str(path), "-t", text.spoken]
    outcome = subprocess.run(["flite", *options], capture_output=True, text=True, timeout=60)
    if outcome.returncode or not path.exists():
        raise RuntimeError(f"`flite` could not say {text.spoken!r} as {text.voice}: {outcome.stderr.strip()}")
    return path
