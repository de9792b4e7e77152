"""Transcripts as sub-words, with case and punctuation."""

from collections.abc import Iterable

import tensorflow as tf

from attention_apps.applications.outputs import token_probabilities
from attention_apps.applications.parts import Tensors
from attention_apps.applications.recognition.codec import SpeechCodec
from attention_apps.applications.recognition.config import RecognizerConfig, SpeechDecodingOptions
from attention_apps.applications.recognition.word_times import attention_spans
from attention_apps.checks import require
from attention_apps.constants import END, PADDING
from attention_apps.decoding import DecodingResult
from attention_apps.models.moonshine_encoder import MIN_SAMPLES, SAMPLES_PER_FRAME
from attention_apps.preprocessing.audio import SAMPLE_RATE
from attention_apps.preprocessing.characters import normalize
from attention_apps.preprocessing.sub_words import SubWords
from attention_apps.preprocessing.vocabulary import Vocabulary


class SubWordCodec(SpeechCodec):
    """Writes sub-words, which attention aligns with the recording."""

    token_name = "sub-word"
    counts_end = True  # where it repeats itself, the end is unlikely
    frame_seconds = SAMPLES_PER_FRAME / SAMPLE_RATE

    def __init__(self, config: RecognizerConfig, vocabulary: Vocabulary):
        super().__init__(config, vocabulary)
        self.sub_words = SubWords(vocabulary)

    def encode(self, text: str) -> list[int]:
        return self.sub_words.encode(normalize(text, self.config.case, self.config.punctuation))

    def fit_language_model(self, texts: Iterable[str], order: int) -> None:
        raise ValueError("A language model is for recognizers that write letters. This one writes sub-words.")

    def prepare(self, source: Tensors) -> Tensors:
        """Pads recordings that are too short for one position, and scales down samples beyond 1."""
        waveform = source["waveform"]
        is_real = tf.sequence_mask(source["length"], tf.shape(waveform)[1])
        waveform = tf.where(is_real, waveform, 0.0)
        waveform /= tf.maximum(tf.reduce_max(tf.abs(waveform), axis=1, keepdims=True), 1.0)
        missing = tf.maximum(MIN_SAMPLES - tf.shape(waveform)[1], 0)
        waveform = tf.pad(waveform, [[0, 0], [0, missing]])
        lengths = tf.where(source["length"] > 0, tf.maximum(source["length"], MIN_SAMPLES), 0)
        return {"waveform": waveform, "lengths": lengths}

    def search_options(self, options: SpeechDecodingOptions) -> SpeechDecodingOptions:
        require(not options.ctc_weight, "ctc_weight", "0 for a recognizer of sub-words", options.ctc_weight)
        weight = options.language_model_weight
        require(not weight, "language_model_weight", "0 for a recognizer of sub-words", weight)
        return options

    def texts(self, token_ids: tf.Tensor, source: Tensors) -> tf.Tensor:
        return tf.strings.strip(tf.strings.regex_replace(self.sub_words.decode(token_ids), r"[\s\p{Z}]+", " "))

    def tokens(self, token_ids: tf.Tensor) -> tf.Tensor:
        return self.sub_words.spell(token_ids)

    def outputs(self, source: Tensors, memory: Tensors, result: DecodingResult, forced: Tensors) -> Tensors:
        """Empties the best text where the decoder is sure that there is no speech."""
        silence = tf.nn.softmax(tf.cast(forced["logits"][:, 0], tf.float32))[:, END]
        is_silent = (silence >= self.config.moonshine.silence_threshold)[:, tf.newaxis]
        is_best = tf.range(tf.shape(result.scores)[1]) == 0
        is_emptied = is_silent & is_best  # (B, N)
        result = result._replace(
            token_ids=tf.where(is_emptied[..., tf.newaxis], PADDING, result.token_ids),
            scores=tf.where(is_emptied, tf.math.log(silence)[:, tf.newaxis], result.scores),
        )
        forced = {**forced, "token_ids": tf.where(is_silent, PADDING, forced["token_ids"])}
        return super().outputs(source, memory, result, forced)

    def align(self, source: Tensors, memory: Tensors, forced: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
        return attention_spans(forced["attention"]), token_probabilities(forced)
