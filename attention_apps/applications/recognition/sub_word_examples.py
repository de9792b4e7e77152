"""Recordings and their transcripts in sub-words as training examples."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.applications.recognition.config import RecognizerConfig
from attention_apps.applications.recognition.examples import SpeechExamples
from attention_apps.data import DataCheck
from attention_apps.models.moonshine_encoder import MIN_SAMPLES
from attention_apps.preprocessing.audio import audio_seconds
from attention_apps.preprocessing.vocabulary import Vocabulary

_NO_VOCABULARY = "A recognizer that writes sub-words needs their vocabulary: start with `from_preset`."


class SubWordExamples(SpeechExamples):
    """Waveforms and sub-words. The vocabulary is fixed, because sub-words make up any text."""

    @staticmethod
    def data_check(config: RecognizerConfig, codec: Any) -> DataCheck:
        if codec is None:
            raise ValueError(_NO_VOCABULARY)
        assert config.moonshine is not None

        def sub_words(text: str) -> Sequence[str]:
            return codec.vocabulary.decode(codec.encode(text))

        return DataCheck(
            "audio",
            "transcript",
            probe=audio_seconds,
            probe_name="audio_seconds",
            tokenize=sub_words,
            vocabulary=codec.vocabulary,
            max_source_length=config.max_seconds,
            max_target_length=config.moonshine.max_length,
        )

    def make_vocabulary(self) -> Vocabulary:
        raise ValueError(_NO_VOCABULARY)

    def new_words(self, codec: Any) -> Iterable[str]:
        return ()

    def unknown_rates(self, codec: Any) -> dict[str, float]:
        return {}

    def fit_codec(self, codec: Any) -> None:
        """There is no language model of sub-words."""

    def trained_source(self) -> dict[str, tf.TensorSpec]:
        return {"waveform": tf.TensorSpec((None,), tf.float32), "lengths": tf.TensorSpec((), tf.int32)}

    def make_source(self, waveform: np.ndarray, random: np.random.Generator, epoch: int) -> dict[str, np.ndarray]:
        padded = np.pad(waveform, (0, max(MIN_SAMPLES - len(waveform), 0)))
        return {"waveform": padded, "lengths": np.array(len(padded), np.int32)}
