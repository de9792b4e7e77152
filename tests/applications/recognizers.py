"""Tiny recognizers of both kinds, and recordings for them: tones, one for each letter."""

import io

import keras
import numpy as np
import soundfile

from attention_apps.applications import RecognizerConfig, SpeechRecognizer
from attention_apps.preprocessing.audio import SAMPLE_RATE
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.training.config import read_config

LETTERS = ("A", "B", "C", " ")
_FREQUENCIES = {"A": 300, "B": 900, "C": 2500}
# A decoder and a search that are quick to trace.
SMALL_DECODER = {"embedding_dim": 6, "units": 14, "attend": "after", "attention": {"kind": "luong"}}
GREEDY = {"beam_size": 1, "max_length": 9, "ctc_weight": 0.0}
CONFIG = {
    "max_seconds": 4.0,
    "features": {"num_mels": 12},
    "encoder": {"units": 10, "num_layers": 1, "filters": 3, "dropout": 0.0},
    "decoder": {
        "embedding_dim": 6,
        "units": 14,
        "attention": {"kind": "location_sensitive", "units": 9, "filters": 3, "kernel_size": 5},
    },
    "decoding": {"beam_size": 3, "num_best": 2, "max_length": 9},
    "output": {"min_confidence": 0.0},
    "augmentation": {"spectrum_from_epoch": 1, "noise_alone": 2, "max_noise_fraction": 1.0},
    "training": {"epochs": 2, "batch_size": 8, "max_batch_length": 20.0, "learning_rate": 1e-2, "validate_every": 2},
}


# Moonshine with the pieces of a few words.
PIECES = ("▁a", "▁b", "ab", "c", ",", "▁", "<0xC3>", "<0xA9>", "<unused_12>", "▁the")
MOONSHINE = {
    "moonshine": {
        "dim": 10,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "num_heads": 2,
        "hidden_dim": 7,
        "rotary_dim": 4,
        "max_length": 12,
    },
    "case": "keep",
    "punctuation": True,
    "max_seconds": 4.0,
    "features": {"num_mels": 12},
    "decoding": {"beam_size": 3, "num_best": 2, "max_length": 13, "min_length": 2, "ctc_weight": 0.0},
    "output": {"min_confidence": 0.0},
    "training": {"epochs": 1, "batch_size": 5, "max_batch_length": 20.0, "learning_rate": 1e-3},
}


def make_moonshine(**changes):
    """A recognizer of sub-words, whose texts depend on the recording."""
    keras.utils.set_random_seed(4)
    recognizer = SpeechRecognizer(read_config(RecognizerConfig, {**MOONSHINE, **changes}), Vocabulary(PIECES))
    recognizer.model.decoder.embedding.assign(30 * recognizer.model.decoder.embedding)
    return recognizer


def make_config(**changes):
    return read_config(RecognizerConfig, {**CONFIG, **changes})


def make_recognizer(**changes):
    keras.utils.set_random_seed(3)
    return SpeechRecognizer(make_config(**changes), Vocabulary(LETTERS))


def say(text, letter_seconds=0.2, noise=0.003, seed=0):
    """A recording in which each letter is a tone and each space is a pause."""
    random = np.random.default_rng(seed)
    time = np.arange(round(letter_seconds * SAMPLE_RATE)) / SAMPLE_RATE
    tones = [0.4 * np.sin(2 * np.pi * _FREQUENCIES.get(letter, 0) * time) for letter in f" {text} "]
    waveform = np.concatenate(tones)
    return (waveform + noise * random.normal(size=len(waveform))).astype(np.float32)


def wav_bytes(waveform, sample_rate=SAMPLE_RATE, file_format="WAV", subtype=None):
    buffer = io.BytesIO()
    soundfile.write(buffer, waveform, sample_rate, format=file_format, subtype=subtype)
    return buffer.getvalue()


def write_corpus(folder, count, seed=0):
    """A manifest of `count` recordings, and its path."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    lines = ["audio\ttranscript\tgroup"]
    for number in range(count):
        text = "".join(random.choice(list("ABC"), int(random.integers(1, 4))))
        (folder / f"{number}.wav").write_bytes(wav_bytes(say(text, seed=number)))
        lines.append(f"{number}.wav\t{text.lower()}\t{'odd' if number % 2 else 'even'}")
    (folder / "corpus.tsv").write_text("\n".join(lines) + "\n")
    return folder / "corpus.tsv"


def bound_examples(recognizer, manifest, cache, training=True):
    """The examples of a manifest, ready for the recognizer's model."""
    examples = recognizer.parts.examples(list(recognizer.manifest(manifest).rows()), recognizer.config)
    examples.bind(recognizer.codec, recognizer.model, cache, training=training, quiet=True)
    return examples
