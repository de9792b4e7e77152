"""What the codecs of letters and of sub-words share: transcripts with the time and the confidence of each word."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.applications.confidence import calibrated, geometric_mean
from attention_apps.applications.outputs import best_tokens, clear_rows, ranked
from attention_apps.applications.parts import AnsweredParts, Codec, Reading, Tensors
from attention_apps.applications.recognition.config import TranscriptOptions
from attention_apps.applications.recognition.reader import OK, SILENT, STATUSES, TOO_SHORT, UNCLEAR
from attention_apps.applications.recognition.transcript import SpokenWord, Transcript, TranscriptPart
from attention_apps.applications.recognition.word_times import spoken_words
from attention_apps.constants import END
from attention_apps.decoding import DecodingResult
from attention_apps.preprocessing.audio import SAMPLE_RATE
from attention_apps.preprocessing.pauses import envelope, loud_frames

# Outputs that a transcript shows and an exported model does not.
_SHOWN = ("envelope", "num_frames", "num_positions")


class SpeechCodec(Codec):
    """Makes transcripts of tokens, and finds out when each word was said.

    Attributes:
        frame_seconds: how much of a recording one position of the encoder stands for.
        token_name: what a token is called.
        counts_end: whether the confidence of the end token counts in that of a text.
    """

    frame_seconds: float
    token_name: str
    counts_end = False

    @property
    def output_notes(self) -> Mapping[str, str]:  # type: ignore[override]
        return {
            "text": "transcripts, best first",
            "score": "what the transcripts are ranked by; more is better",
            "confidence": "how sure the best transcript is, from 0 to 1",
            "unsure": "whether that is below the threshold of the preset",
            "token_ids": "token ids of the best transcript, then the end token 2, then 0",
            "tokens": f"{self.token_name}s of the best transcript, spaces among them, then empty strings",
            "attention": f"for each {self.token_name}, how much each {self.frame_seconds:g} s were listened to",
            "words": "words of the best transcript, then empty strings",
            "start": "the second at which each word begins",
            "end": "the second at which each word ends",
            "word_confidence": "how sure each word is, from 0 to 1",
            "status": ", ".join(f"`{status}`" for status in (*STATUSES.values(), UNCLEAR, SILENT, TOO_SHORT)),
        }

    def encode(self, text: str) -> list[int]:
        """The token ids of a transcript, without start and end."""
        raise NotImplementedError

    def tokens(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Graph code: what each id adds to a text, spaces included; nothing for padding, start and end."""
        raise NotImplementedError

    def align(self, source: Tensors, memory: Tensors, forced: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
        """Graph code: where each token was heard and how sure that is.

        Returns:
            The first position of each token and the position after its last, `(batch, target, 2)`, in positions of the
            encoder; and confidences from 0 to 1, `(batch, target)`.
        """
        raise NotImplementedError

    def outputs(self, source: Tensors, memory: Tensors, result: DecodingResult, forced: Tensors) -> Tensors:
        token_ids, attention = forced["token_ids"], forced["attention"]
        is_written = token_ids > END
        spans, confidences = self.align(source, memory, forced)
        tokens = self.tokens(token_ids)
        loud, num_frames = loud_frames(source["waveform"], source["length"])
        seconds = tf.cast(source["length"], tf.float64) / SAMPLE_RATE
        is_counted = is_written | (token_ids == END) if self.counts_end else is_written
        sure = calibrated(geometric_mean(confidences, is_counted), self.config.confidence)
        has_text = tf.reduce_any(is_written, axis=1)
        return {
            "text": self.texts(result.token_ids, source),
            "score": result.scores,
            "confidence": tf.where(has_text, sure["confidence"], 0.0),
            "unsure": sure["unsure"] & has_text,
            "token_ids": token_ids,
            "tokens": tokens,
            "attention": tf.where(is_written[..., tf.newaxis], attention, 0.0),
            **spoken_words(tokens, spans, confidences, self.frame_seconds, loud, num_frames, seconds),
            "envelope": envelope(source["waveform"]),
            "num_frames": num_frames,
            "num_positions": tf.math.count_nonzero(memory["mask"], axis=1, dtype=tf.int32),
        }

    def join(self, reading: Reading, parts: AnsweredParts, options: TranscriptOptions) -> Transcript:
        made = [self._part(source, outputs, options.min_confidence) for source, outputs in parts]
        threshold = self.config.confidence.threshold
        return Transcript(made, self.frame_seconds, threshold, source=reading.item)

    def _part(self, source, outputs, min_confidence):
        start, end = source.place
        if outputs is None:
            return TranscriptPart.silent(start, end)
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
            attention=attention[:, : outputs["num_positions"]],
            words=words,
            confidence=confidence,
            envelope=outputs["envelope"][: outputs["num_frames"]].astype(np.float16),
        )

    def failed(self, item: Any, error: str) -> Transcript:
        return Transcript.failed(item, error)

    def serve(self, outputs: Tensors, context: Tensors, options: TranscriptOptions) -> Tensors:
        """A recording in which nothing is heard has one hypothesis, the empty text, with a score of 0."""
        outputs = {name: tensor for name, tensor in outputs.items() if name not in _SHOWN}
        status, confidence = context["status"], outputs["confidence"]
        is_unclear = (status == OK) & (confidence > 0) & (confidence < options.min_confidence)
        status = tf.where(is_unclear, UNCLEAR, status)
        is_best = tf.range(tf.shape(outputs["score"])[1]) == 0
        is_empty = (status == SILENT) | (status == TOO_SHORT)
        ranks = {name: outputs[name] for name in ("text", "score")}
        cleared = clear_rows(outputs, status != OK)
        no_score = tf.where(is_best & is_empty[:, tf.newaxis], 0.0, cleared["score"])
        cleared["text"] = tf.where(is_unclear[:, tf.newaxis] & ~is_best, ranks["text"], cleared["text"])
        cleared["score"] = tf.where(is_unclear[:, tf.newaxis], ranks["score"], no_score)
        cleared["confidence"] = tf.where(is_unclear, confidence, cleared["confidence"])
        cleared["unsure"] = cleared["unsure"] | is_unclear
        return {**cleared, "status": status}
