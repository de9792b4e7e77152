"""Recordings and their transcripts, as a recognizer's training takes them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.applications.recognizer_config import RecognizerConfig
from attention_apps.models.tokens import END, START
from attention_apps.preprocessing.audio import SAMPLE_RATE, read_audio
from attention_apps.preprocessing.audio_augmentation import coloured_noise
from attention_apps.preprocessing.characters import normalise, tokenize
from attention_apps.preprocessing.log_mel import LogMelOptions, log_mel
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.training.feature_cache import FeatureCache
from attention_apps.training.manifest import Row

_LARGEST = 32767
_NOISE_SECONDS = (0.3, 4.0)
_NOISE_SEED = 7
# Noise in bursts: how long the loud and the soft stretches last, and how long it takes from one to the other.
_STRETCH_SECONDS = (0.05, 0.6)
_RAMP_SECONDS = (0.005, 0.1)


class SpeechExamples:
    """One example for each row: what is heard and what was said.

    Recordings are read once and kept as 16-bit samples in a cache on disk. In training there are also recordings of
    noise, numbered after the rows, in which nothing is said: half of them are steady, half come in bursts.

    Args:
        rows: rows of a manifest, with `audio` and `transcript`, and perhaps `group`.
        cache: folder of the samples.
        training: whether recordings are augmented.
    """

    def __init__(
        self,
        config: RecognizerConfig,
        vocabulary: Vocabulary,
        rows: Sequence[Row],
        cache: Path,
        quiet: bool = False,
        training: bool = False,
    ):
        self.config = config
        self.training = training
        self.rows = rows
        self._transcripts = [normalise(row["transcript"], config.case, config.punctuation) for row in rows]
        self._tokens = [
            np.array([START, *vocabulary.encode(tokenize(text)), END], np.int32) for text in self._transcripts
        ]
        self.waveforms = FeatureCache(cache, {"samples": "int16", "sample_rate": SAMPLE_RATE})
        paths = [row["audio"] for row in rows]
        self.waveforms.fill(paths, lambda some: [_to_int16(read_audio(path)) for path in some], quiet=quiet)
        self._noise_count = config.augmentation.noise_alone if training else 0
        seconds = [len(self.waveforms[path]) / SAMPLE_RATE for path in paths]
        self.lengths = np.array([*seconds, *np.linspace(*_NOISE_SECONDS, self._noise_count)])
        self._groups = np.array([row.values.get("group", "") for row in rows])
        self._check_mixture()

    @property
    def signature(self) -> dict[str, Any]:
        """What `Batches` needs to know of an example."""
        features = tf.TensorSpec((None, self.config.features.num_mels), tf.float32)
        source = {"features": features, "mask": tf.TensorSpec((None,), tf.bool)}
        return {"source": source, "tokens": tf.TensorSpec((None,), tf.int32)}

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index >= len(self.rows):
            return {"waveform": self._noise(index), "tokens": np.array([START, END], np.int32)}
        waveform, tokens = self.waveforms[self.rows[index]["audio"]], self._tokens[index]
        if self.training:
            return {"waveform": waveform, "tokens": tokens}
        return {"source": _source(self._features(waveform)), "tokens": tokens}

    def augment(self, example: dict[str, Any], random: np.random.Generator, epoch: int) -> dict[str, Any]:
        """The recording as training hears it this time."""
        config, waveform = self.config.augmentation, _to_float(example["waveform"])
        if epoch >= config.waveform_from_epoch:
            waveform = config.waveform(waveform, random)
        options = self.config.features
        options = replace(options, hop=options.hop * float(random.choice(config.tempos)))
        features = waveform_features(waveform, options)
        if epoch >= config.spectrum_from_epoch:
            features = config.spectrum(features, random)
        return {"source": _source(features), "tokens": example["tokens"]}

    def select(self, epoch: int, random: np.random.Generator) -> np.ndarray:
        """The examples of an epoch: what the mixture says, and all of the noise."""
        chosen = [np.arange(len(self.rows))] if not self.config.mixture else []
        for share in self.config.mixture:
            if share.is_in(epoch):
                members = np.flatnonzero(self._groups == share.group)
                count = len(members) if share.count is None else share.count
                chosen.append(random.choice(members, count, replace=count > len(members)))
        chosen.append(np.arange(len(self.rows), len(self)))
        selected = np.concatenate(chosen)
        if epoch < self.config.short_epochs:
            short = selected[self.lengths[selected] < self.config.short_seconds]
            selected = short if len(short) else selected
        return selected

    def references(self, index: int) -> list[str]:
        """What was said, nothing at all in noise."""
        return [self._transcripts[index] if index < len(self.rows) else ""]

    def name(self, index: int) -> str:
        return self.rows[index]["audio"]

    def _check_mixture(self):
        known = sorted(set(self._groups.tolist()))
        for share in self.config.mixture if self.training else ():
            if share.group not in known:
                raise ValueError(
                    f"`mixture` must name groups of the data: {', '.join(map(repr, known))}. "
                    f"Received: group={share.group!r}"
                )

    def _features(self, waveform):
        return waveform_features(_to_float(waveform), self.config.features)

    def _noise(self, index):
        random = np.random.default_rng([_NOISE_SEED, index])
        noise = coloured_noise(round(self.lengths[index] * SAMPLE_RATE), random.uniform(0, 2), random)
        noise *= np.float32(10 ** random.uniform(-3, -1))
        return _to_int16(noise * _bursts(len(noise), random) if index % 2 else noise)


def waveform_features(waveform: np.ndarray, options: LogMelOptions) -> np.ndarray:
    """Log-mel features `(time, mels)` of one recording, by the code that the exported graph has."""
    samples = tf.constant(waveform[np.newaxis])
    return log_mel(samples, tf.constant([len(waveform)]), options)[0][0].numpy()


def _bursts(size, random):
    """An envelope `(size,)` that is in turn 1 and soft: steady noise alone would leave bursts to be heard as words."""
    seconds = size / SAMPLE_RATE
    count = 2 + int(seconds / (_STRETCH_SECONDS[0] + _RAMP_SECONDS[0]))
    edges = np.cumsum(random.uniform(*zip(_STRETCH_SECONDS, _RAMP_SECONDS, strict=True), (count, 2)))
    soft = 10 ** random.uniform(-5, -0.5)  # in 16 bits, about half of these are silence
    levels = np.resize([1, soft, soft, 1], 2 * count)  # before and after each ramp
    time = np.arange(size) / SAMPLE_RATE + random.uniform(0, _STRETCH_SECONDS[1])
    return np.interp(time, edges, levels).astype(np.float32)


def _source(features):
    return {"features": features, "mask": np.ones(len(features), bool)}


def _to_int16(waveform):
    """Samples as 16-bit integers; what is louder than 1 is made softer as a whole, which the features do not hear."""
    loudest = max(1.0, float(np.abs(waveform).max(initial=0)))
    return np.round(waveform * (_LARGEST / loudest)).astype(np.int16)


def _to_float(waveform):
    return waveform.astype(np.float32) / _LARGEST if waveform.dtype == np.int16 else waveform
