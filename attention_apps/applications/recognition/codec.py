"""Transcripts as letters, with the time and the confidence of each word."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.applications.confidence import calibrated, geometric_mean
from attention_apps.applications.outputs import best_tokens, clear_rows, ranked, token_probabilities
from attention_apps.applications.parts import AnsweredParts, Codec, Reading, Tensors
from attention_apps.applications.recognition.config import RecognizerConfig, SpeechDecodingOptions, TranscriptOptions
from attention_apps.applications.recognition.reader import OK, SILENT, STATUSES, TOO_SHORT, UNCLEAR
from attention_apps.applications.recognition.transcript import SpokenWord, Transcript, TranscriptPart
from attention_apps.applications.recognition.word_times import letter_spans, spoken_words
from attention_apps.constants import END
from attention_apps.decoding import DecodingResult
from attention_apps.decoding.ctc_alignment import align_ctc
from attention_apps.decoding.ctc_prefix_scorer import ctc_prefix_scorer
from attention_apps.decoding.ngram_model import NgramModel
from attention_apps.preprocessing.audio import SAMPLE_RATE
from attention_apps.preprocessing.characters import normalize, tokenize
from attention_apps.preprocessing.log_mel import log_mel
from attention_apps.preprocessing.pauses import loud_frames
from attention_apps.preprocessing.vocabulary import Vocabulary

LANGUAGE_MODEL = "language_model.txt"
# Frames of the features that make one position of the encoder.
REDUCTION = 4


class LetterCodec(Codec):
    """Spells transcripts, and finds out when each word was said.

    CTC says at which positions each letter was heard; where it finds no alignment, attention does.
    """

    def __init__(self, config: RecognizerConfig, vocabulary: Vocabulary):
        super().__init__(config, vocabulary)
        self.language_model: NgramModel | None = None
        self.frame_seconds = REDUCTION * config.features.hop

    @property
    def output_notes(self) -> Mapping[str, str]:  # type: ignore[override]
        return {
            "text": "transcripts, best first",
            "score": "what the transcripts are ranked by; more is better",
            "confidence": "how sure the best transcript is, from 0 to 1",
            "unsure": "whether that is below the threshold of the preset",
            "token_ids": "token ids of the best transcript, then the end token 2, then 0",
            "tokens": "letters of the best transcript, spaces among them, then empty strings",
            "attention": f"for each of these letters, how much each {self.frame_seconds:g} s were listened to",
            "words": "words of the best transcript, then empty strings",
            "start": "the second at which each word begins",
            "end": "the second at which each word ends",
            "word_confidence": "how sure each word is, from 0 to 1",
            "status": ", ".join(f"`{status}`" for status in (*STATUSES.values(), UNCLEAR, SILENT, TOO_SHORT)),
        }

    def letters(self, text: str) -> list[str]:
        """The letters of a transcript, as the configuration has them written."""
        return tokenize(normalize(text, self.config.case, self.config.punctuation))

    def fit_language_model(self, texts: Iterable[str], order: int) -> None:
        """Counts the n-grams of letters of texts; searches with a `language_model_weight` use them."""
        letters = (self.vocabulary.encode(self.letters(text)) for text in texts)
        self.language_model = NgramModel.fit(letters, len(self.vocabulary), order)

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

    def outputs(self, source: Tensors, memory: Tensors, result: DecodingResult, forced: Tensors) -> Tensors:
        token_ids, attention = forced["token_ids"], forced["attention"]
        is_letter = token_ids > END
        spans, letter_confidence = self._align(memory, forced)
        tokens = self.vocabulary.strings(token_ids)
        loud, num_frames = loud_frames(source["waveform"], source["length"])
        seconds = tf.cast(source["length"], tf.float64) / SAMPLE_RATE
        return {
            "text": self.texts(result.token_ids, source),
            "score": result.scores,
            **calibrated(geometric_mean(letter_confidence, is_letter), self.config.confidence),
            "token_ids": token_ids,
            "tokens": tokens,
            "attention": tf.where(is_letter[..., tf.newaxis], attention, 0.0),
            **spoken_words(tokens, spans, letter_confidence, self.frame_seconds, loud, num_frames, seconds),
            "features": source["features"],
            "num_frames": tf.math.count_nonzero(source["mask"], axis=1, dtype=tf.int32),
        }

    def _align(self, memory, forced):
        """Where each letter was heard, `(batch, target, 2)`, and how sure that is, `(batch, target)`."""
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

    def join(self, reading: Reading, parts: AnsweredParts, options: TranscriptOptions) -> Transcript:
        made = [self._part(source, outputs, options.min_confidence) for source, outputs in parts]
        threshold = self.config.confidence.threshold
        return Transcript(made, self.frame_seconds, threshold, source=reading.item)

    def _part(self, source, outputs, min_confidence):
        start, end = source.place
        if outputs is None:
            return TranscriptPart.silent(start, end, self.config.features.num_mels)
        features = outputs["features"][: outputs["num_frames"]].astype(np.float16)
        positions = -(-len(features) // REDUCTION)
        tokens, attention = best_tokens(outputs)
        alternatives, confidence = ranked(outputs), float(outputs["confidence"])
        words = [
            SpokenWord(word.decode(), round(start + begin, 3), round(start + stop, 3), round(sure, 4))
            for word, begin, stop, sure in zip(
                *(outputs[name].tolist() for name in ("words", "start", "end", "word_confidence")), strict=True
            )
            if word
        ]
        if confidence < min_confidence:
            tokens, attention, words = [], attention[:0], []
            alternatives = [("", alternatives[0][1]), *alternatives[1:]]
        return TranscriptPart(
            start=start,
            end=end,
            score=alternatives[0][1],
            tokens=tokens,
            alternatives=alternatives,
            attention=attention[:, :positions],
            words=words,
            confidence=confidence,
            features=features,
        )

    def failed(self, item: Any, error: str) -> Transcript:
        return Transcript.failed(item, error)

    def serve(self, outputs: Tensors, context: Tensors, options: TranscriptOptions) -> Tensors:
        """A recording in which nothing is heard has one hypothesis, the empty text, with a score of 0."""
        outputs = {name: tensor for name, tensor in outputs.items() if name not in ("features", "num_frames")}
        status = context["status"]
        is_unclear = (status == OK) & (outputs["confidence"] < options.min_confidence)
        status = tf.where(is_unclear, UNCLEAR, status)
        is_best = tf.range(tf.shape(outputs["score"])[1]) == 0
        is_empty = (status == SILENT) | (status == TOO_SHORT)
        ranks = {name: outputs[name] for name in ("text", "score")}
        cleared = clear_rows(outputs, status != OK)
        no_score = tf.where(is_best & is_empty[:, tf.newaxis], 0.0, cleared["score"])
        cleared["text"] = tf.where(is_unclear[:, tf.newaxis] & ~is_best, ranks["text"], cleared["text"])
        cleared["score"] = tf.where(is_unclear[:, tf.newaxis], ranks["score"], no_score)
        cleared["confidence"] = tf.where(is_unclear, outputs["confidence"], cleared["confidence"])
        cleared["unsure"] = cleared["unsure"] | is_unclear
        return {**cleared, "status": status}

    def files(self) -> dict[str, str]:
        return {} if self.language_model is None else {LANGUAGE_MODEL: self.language_model.to_text()}

    def take_files(self, texts: Mapping[str, str]) -> None:
        if LANGUAGE_MODEL in texts:
            self.language_model = NgramModel.from_text(texts[LANGUAGE_MODEL], len(self.vocabulary))
