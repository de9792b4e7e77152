"""Presets for the benchmarks that ask them, and inputs for whoever names no files."""

import argparse
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PRESETS = (
    "show_attend_tell_coco",
    "show_attend_tell_flickr8k",
    "show_attend_tell_hard_flickr8k",
    "moonshine_tiny_english",
    "listen_attend_spell_an4",
    "pointer_generator_headlines",
    "sentence_compression_google",
)
# What each application does, and what it reads.
VERBS = {
    "caption": "photos",
    "transcribe": "recordings",
    "summarize": "texts",
    "compress": "texts",
    "translate": "texts",
}
_TEXTS = (
    "The city council voted on Tuesday night to close the old harbor bridge to cars from next month.",
    "A rare white otter named Pebble, who escaped from the Larkhill zoo on Sunday, was found unharmed two days later "
    "in a farmer's pond eight miles away, keepers said.",
)


def load(preset: str) -> Any:
    """Load the application of a preset, given by its name or folder."""
    import attention_apps

    return attention_apps.load(preset)


def find_verb(application: Any) -> str:
    """Name the method that answers inputs."""
    return next(verb for verb in VERBS if hasattr(application, verb))


def verb_of(application: Any) -> Callable[..., Any]:
    """Return the method that answers inputs."""
    return getattr(application, find_verb(application))


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the files to ask about, one option for each kind of input."""
    for kind in sorted(set(VERBS.values())):
        parser.add_argument(f"--{kind}", nargs="+", type=Path, default=[], metavar="FILE", help=f"{kind} to ask about")


def read_inputs(kind: str, paths: Sequence[Path]) -> list[bytes]:
    """Read files as bytes; without files, make up inputs of the kind."""
    if paths:
        return [path.read_bytes() for path in paths]
    return {"photos": _make_photo, "recordings": _make_recording, "texts": _make_texts}[kind]()


def set_threads(threads: int) -> None:
    """Limit TensorFlow's threads. Call this before TensorFlow is imported."""
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = str(threads)


def _make_photo():
    """A photo of 640 × 480 with large soft spots of color."""
    import numpy as np
    import PIL.Image

    spots = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    PIL.Image.fromarray(spots).resize((640, 480), PIL.Image.Resampling.BICUBIC).save(buffer, "JPEG")
    return [buffer.getvalue()]


def _make_recording():
    """A WAV file of three seconds: twelve syllables of a buzzing voice, with noise behind them."""
    import numpy as np
    import soundfile

    time, generator = np.arange(48_000) / 16_000, np.random.default_rng(0)
    voice = sum(np.sin(2 * np.pi * 140 * harmonic * time) / harmonic for harmonic in range(1, 20))
    waveform = 0.1 * voice * np.maximum(np.sin(2 * np.pi * 4 * time), 0) + 0.003 * generator.normal(size=len(time))
    buffer = io.BytesIO()
    soundfile.write(buffer, waveform.astype(np.float32), 16_000, format="WAV")
    return [buffer.getvalue()]


def _make_texts():
    return [text.encode() for text in _TEXTS]
