"""Transcripts as letters."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from attention_apps.applications.outputs import token_probabilities
from attention_apps.applications.parts import Tensors
from attention_apps.applications.recognition.codec import SpeechCodec
from attention_apps.applications.recognition.config import RecognizerConfig, SpeechDecodingOptions
from attention_apps.applications.recognition.word_times import letter_spans
from attention_apps.constants import END
from attention_apps.decoding.ctc_alignment import align_ctc
from attention_apps.decoding.ctc_prefix_scorer import ctc_prefix_scorer
from attention_apps.decoding.ngram_model import NgramModel
from attention_apps.preprocessing.characters import normalize, tokenize
from attention_apps.preprocessing.log_mel import log_mel
from attention_apps.preprocessing.vocabulary import Vocabulary

LANGUAGE_MODEL = "language_model.txt"
# Frames of the features that make one position of the encoder.
REDUCTION = 4


class LetterCodec(SpeechCodec):
    """Spells transcripts.

    CTC says at which positions each letter was heard; where it finds no alignment, attention does.
    """

    token_name = "letter"

    def __init__(self, config: RecognizerConfig, vocabulary: Vocabulary):
        super().__init__(config, vocabulary)
        self.language_model: NgramModel | None = None
        self.frame_seconds = REDUCTION * config.features.hop

    def letters(self, text: str) -> list[str]:
        """The letters of a transcript, as the configuration has them written."""
        return tokenize(normalize(text, self.config.case, self.config.punctuation))

    def encode(self, text: str) -> list[int]:
        return self.vocabulary.encode(self.letters(text))

    def fit_language_model(self, texts: Iterable[str], order: int) -> None:
        """Counts the n-grams of letters of texts; searches with a `language_model_weight` use them."""
        self.language_model = NgramModel.fit(map(self.encode, texts), len(self.vocabulary), order)

    def prepare(self, source: Tensors) -> Tensors:
        features, mask = log_mel(source["waveform"], source["length"], self.config.features)
        return {"features": features, "mask": mask}

    def scorers(self, memory: Tensors, options: SpeechDecodingOptions) -> Sequence[Any]:
        scorers = []
        if options.ctc_weight:
            weight = options.ctc_weight / (1 - options.ctc_weight)
            scorers.append(ctc_prefix_scorer(memory["ctc_logits"], memory["mask"], weight))
        if options.language_model_weight:
            if self.language_model is None:
                raise ValueError(
                    "`language_model_weight` must be 0 without a language model, which `fit_language_model` makes. "
                    f"Received: language_model_weight={options.language_model_weight}"
                )
            scorers.append(self.language_model.scorer(tf.shape(memory["mask"])[0], options.language_model_weight))
        return scorers

    def texts(self, token_ids: tf.Tensor, source: Tensors) -> tf.Tensor:
        texts = tf.strings.reduce_join(self.vocabulary.strings(token_ids), axis=2)
        return tf.strings.strip(tf.strings.regex_replace(texts, r"[\s\p{Z}]+", " "))

    def tokens(self, token_ids: tf.Tensor) -> tf.Tensor:
        return self.vocabulary.strings(token_ids)

    def align(self, source: Tensors, memory: Tensors, forced: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
        letters = tf.where(forced["token_ids"] > END, forced["token_ids"], 0)
        num_letters = tf.math.count_nonzero(letters, axis=1, dtype=tf.int32)
        num_positions = tf.math.count_nonzero(memory["mask"], axis=1, dtype=tf.int32)
        log_probs = tf.nn.log_softmax(tf.cast(memory["ctc_logits"], tf.float32))  # (B, S, V)
        spans = letter_spans(*align_ctc(log_probs, num_positions, letters, num_letters), forced["attention"])
        of_letters = tf.gather(log_probs, letters, axis=2, batch_dims=1)  # (B, S, T)
        positions = tf.range(tf.shape(of_letters)[1])[:, tf.newaxis]
        is_inside = (positions >= spans[:, tf.newaxis, :, 0]) & (positions < spans[:, tf.newaxis, :, 1])
        by_ctc = tf.reduce_max(tf.where(is_inside, of_letters, float("-inf")), axis=1)
        return spans, tf.sqrt(token_probabilities(forced) * tf.exp(by_ctc))

    def files(self) -> dict[str, str]:
        return {} if self.language_model is None else {LANGUAGE_MODEL: self.language_model.to_text()}

    def take_files(self, texts: Mapping[str, str]) -> None:
        if LANGUAGE_MODEL in texts:
            self.language_model = NgramModel.from_text(texts[LANGUAGE_MODEL], len(self.vocabulary))
