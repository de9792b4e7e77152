"""Training examples: recordings and their transcripts, in letters or sub-words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.applications.parts import Examples
from attention_apps.applications.recognition.codec import REDUCTION, LetterCodec, SpeechCodec
from attention_apps.applications.recognition.config import RecognizerConfig
from attention_apps.constants import END, START
from attention_apps.data import Batches, DataCheck, FeatureCache, Row
from attention_apps.metrics import MetricResult, cer, wer
from attention_apps.models import Seq2Seq
from attention_apps.models.moonshine_encoder import MIN_SAMPLES
from attention_apps.preprocessing.audio import SAMPLE_RATE, audio_seconds, read_audio
from attention_apps.preprocessing.audio_augmentation import colored_noise
from attention_apps.preprocessing.audio_features import log_mel, num_frames
from attention_apps.preprocessing.text import normalize_transcript
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.training.config import TrainingConfig

_NO_VOCABULARY = "A recognizer that writes sub-words needs their vocabulary: start with `from_preset`."
_MAX_SAMPLE = 32767
_NOISE_SECONDS = (0.3, 4.0)
_NOISE_SEED = 7
# Noise in bursts: how long the loud and the soft stretches last, and how long it takes from one to the other.
_STRETCH_SECONDS = (0.05, 0.6)
_RAMP_SECONDS = (0.005, 0.1)


class SpeechExamples(Examples):
    """One example for each row: a recording and its transcript.

    Texts are compared in lower case and without punctuation, whatever a recognizer writes.

    In training, recordings are decoded once and cached as 16-bit samples. There are also recordings of noise without
    words, numbered after the rows: half of them are steady, half come in bursts. In validation and evaluation,
    recordings are read as `transcribe` reads them, cut at pauses where they are long.

    Args:
        rows: rows of a manifest, with `audio` and `transcript`, and perhaps `group`.
    """

    columns = ("audio", "transcript")
    path_columns = ("audio",)
    reward_metric = "wer"
    reads_any_length = True

    def __init__(self, rows: Sequence[Row], config: RecognizerConfig):
        super().__init__(rows, config)
        self._transcripts = [normalize_transcript(row["transcript"], config.case, config.punctuation) for row in rows]
        self.words, self.references = self._transcripts, [[text] for text in self._transcripts]

    # What is particular about the data

    @staticmethod
    def data_check(config: RecognizerConfig, codec: Any) -> DataCheck:
        def reject(row: Row, seconds: float | None) -> str | None:
            """Reject texts too long for CTC, which needs a frame per letter and one between equal letters."""
            written = row.tokens or ()
            needed = len(written) + sum(left == right for left, right in pairwise(written))
            frames = -(-int(num_frames(int((seconds or 0.0) * SAMPLE_RATE), config.features)) // REDUCTION)
            if needed <= frames:
                return None
            has = f"{seconds:.2f} s have {frames}"
            return f"`transcript` needs {needed} frames for its {len(written)} letters, and {has}"

        return DataCheck(
            "audio",
            "transcript",
            probe=audio_seconds,
            probe_name="audio_seconds",
            tokenize=lambda text: list(normalize_transcript(text, config.case, config.punctuation)),
            vocabulary=None if codec is None else codec.vocabulary,
            max_source_length=config.max_seconds,
            max_target_length=config.decoding.max_length - 1,
            list_unknown=True,
            reject=reject,
        )

    @staticmethod
    def metrics(texts: list[str], references: list[list[str]], sources: list[str]) -> dict[str, MetricResult]:
        texts = [normalize_transcript(text, "lower") for text in texts]
        references = [[normalize_transcript(text, "lower") for text in of_item] for of_item in references]
        return {"wer": wer(texts, references), "cer": cer(texts, references)}

    def fit_codec(self, codec: SpeechCodec) -> None:
        """Count the n-grams of the letters, if the configuration asks for a language model."""
        if isinstance(codec, LetterCodec) and self.config.language_model_order is not None:
            codec.fit_language_model(self._transcripts, self.config.language_model_order)

    # Examples

    def bind(self, codec: SpeechCodec, model: Seq2Seq, cache: Path, training: bool, quiet: bool) -> None:
        self.codec = codec
        if not training:
            return
        tokens = map(codec.vocabulary.encode, self.target_tokens(codec))
        self._tokens = [np.array([START, *ids, END], np.int32) for ids in tokens]
        self.waveforms = FeatureCache(cache, {"samples": "int16", "sample_rate": SAMPLE_RATE})
        paths = [row["audio"] for row in self.rows]
        self.waveforms.fill(paths, lambda some: [_to_int16(read_audio(path)) for path in some], quiet=quiet)
        augmentation = self.config.augmentation
        noise_count = min(augmentation.noise_alone, math.ceil(augmentation.max_noise_fraction * len(paths)))
        seconds = [len(self.waveforms[path]) / SAMPLE_RATE for path in paths]
        self.lengths = np.array([*seconds, *np.linspace(*_NOISE_SECONDS, noise_count)])
        self.references = [*([text] for text in self._transcripts), *([""] for _ in range(noise_count))]
        self._groups = np.array([row.values.get("group", "") for row in self.rows])
        known = sorted(set(self._groups.tolist()))
        for share in self.config.mixture:
            if share.group not in known:
                raise ValueError(
                    f"`mixture` must name groups of the data: {', '.join(map(repr, known))}. "
                    f"Received: group={share.group!r}"
                )

    def batches(self, training_config: TrainingConfig) -> Batches:
        return Batches(
            self,
            {"source": self.trained_source(), "tokens": tf.TensorSpec((None,), tf.int32)},
            batch_size=training_config.batch_size,
            max_batch_length=training_config.max_batch_length,
            lengths=self.lengths,
            seed=training_config.seed,
            short_first_epochs=training_config.short_first_epochs,
            select=self.select,
            augment=self.augment,
        )

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index < len(self.rows):
            return {"waveform": self.waveforms[self.rows[index]["audio"]], "tokens": self._tokens[index]}
        random = np.random.default_rng([_NOISE_SEED, index])
        noise = colored_noise(round(self.lengths[index] * SAMPLE_RATE), random.uniform(0, 2), random)
        noise *= np.float32(10 ** random.uniform(-3, -1))
        noise = _to_int16(noise * _bursts(len(noise), random) if index % 2 else noise)
        return {"waveform": noise, "tokens": np.array([START, END], np.int32)}

    def augment(self, example: Mapping[str, Any], random: np.random.Generator, epoch: int) -> dict[str, Any]:
        """Return an example with a randomly changed recording."""
        config, waveform = self.config.augmentation, example["waveform"]
        if waveform.dtype == np.int16:
            waveform = waveform.astype(np.float32) / _MAX_SAMPLE
        if epoch >= config.waveform_from_epoch:
            waveform = config.waveform(waveform, random)
        return {"source": self.make_source(waveform, random, epoch), "tokens": example["tokens"]}

    def trained_source(self) -> dict[str, tf.TensorSpec]:
        """Return shape and type of the encoder's input for one example."""
        features = tf.TensorSpec((None, self.config.features.num_mels), tf.float32)
        return {"features": features, "mask": tf.TensorSpec((None,), tf.bool)}

    def make_source(self, waveform: np.ndarray, random: np.random.Generator, epoch: int) -> dict[str, np.ndarray]:
        """Return the encoder's input: features at a random tempo, some of them masked."""
        config, options = self.config.augmentation, self.config.features
        options = replace(options, hop=options.hop * float(random.choice(config.tempos)))
        samples, lengths = tf.constant(waveform[np.newaxis]), tf.constant([len(waveform)])
        features = log_mel(samples, lengths, options)[0][0].numpy()
        if epoch >= config.spectrum_from_epoch:
            features = config.spectrum(features, random)
        return {"features": features, "mask": np.ones(len(features), bool)}

    def select(self, epoch: int, random: np.random.Generator) -> np.ndarray:
        """Return the indices of the examples of an epoch: those of the mixture, and all noise."""
        chosen = [np.arange(len(self.rows))] if not self.config.mixture else []
        for share in self.config.mixture:
            if share.first_epoch <= epoch and (share.end_epoch is None or epoch < share.end_epoch):
                members = np.flatnonzero(self._groups == share.group)
                count = len(members) if share.count is None else share.count
                chosen.append(random.choice(members, count, replace=count > len(members)))
        chosen.append(np.arange(len(self.rows), len(self)))
        selected = np.concatenate(chosen)
        if epoch < self.config.short_epochs:
            short = selected[self.lengths[selected] < self.config.short_seconds]
            selected = short if len(short) else selected
        return selected


class SubWordExamples(SpeechExamples):
    """Waveforms and sub-words."""

    has_fixed_vocabulary = True  # sub-words make up any text

    @staticmethod
    def data_check(config: RecognizerConfig, codec: Any) -> DataCheck:
        if codec is None:
            raise ValueError(_NO_VOCABULARY)
        assert config.moonshine is not None
        return DataCheck(
            "audio",
            "transcript",
            probe=audio_seconds,
            probe_name="audio_seconds",
            tokenize=lambda text: codec.vocabulary.decode(codec.encode(text)),
            vocabulary=codec.vocabulary,
            max_source_length=config.max_seconds,
            max_target_length=config.moonshine.max_length,
        )

    def make_vocabulary(self) -> Vocabulary:
        raise ValueError(_NO_VOCABULARY)

    def trained_source(self) -> dict[str, tf.TensorSpec]:
        return {"waveform": tf.TensorSpec((None,), tf.float32), "lengths": tf.TensorSpec((), tf.int32)}

    def make_source(self, waveform: np.ndarray, random: np.random.Generator, epoch: int) -> dict[str, np.ndarray]:
        padded = np.pad(waveform, (0, max(MIN_SAMPLES - len(waveform), 0)))
        return {"waveform": padded, "lengths": np.array(len(padded), np.int32)}


def _bursts(size, random):
    """Return an envelope `(size,)` that alternates between 1 and soft. Bursts of noise must not be taken for words."""
    seconds = size / SAMPLE_RATE
    count = 2 + int(seconds / (_STRETCH_SECONDS[0] + _RAMP_SECONDS[0]))
    edges = np.cumsum(random.uniform(*zip(_STRETCH_SECONDS, _RAMP_SECONDS, strict=True), (count, 2)))
    soft = 10 ** random.uniform(-5, -0.5)  # in 16 bits, about half of these are silence
    levels = np.resize([1, soft, soft, 1], 2 * count)  # before and after each ramp
    time = np.arange(size) / SAMPLE_RATE + random.uniform(0, _STRETCH_SECONDS[1])
    return np.interp(time, edges, levels).astype(np.float32)


def _to_int16(waveform):
    """Return samples as 16-bit integers. A recording louder than 1 is scaled down; its features stay the same."""
    loudest = max(1.0, float(np.abs(waveform).max(initial=0)))
    return np.round(waveform * (_MAX_SAMPLE / loudest)).astype(np.int16)
