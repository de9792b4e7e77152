"""Convert transcripts to letters or sub-words, and model outputs to a `Transcript`."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.applications.outputs import (
    answer_fields,
    calibrated,
    clear_rows,
    token_probabilities,
)
from attention_apps.applications.parts import AnsweredParts, Codec, Reading, Tensors
from attention_apps.applications.recognition.config import RecognizerConfig, SpeechDecodingOptions, TranscriptOptions
from attention_apps.applications.recognition.reader import OK, SILENT, STATUSES, TOO_SHORT, UNCLEAR
from attention_apps.applications.recognition.transcript import (
    SpokenWord,
    Transcript,
    TranscriptPart,
    spoken_words,
    token_spans,
)
from attention_apps.checks import require
from attention_apps.constants import END, PADDING
from attention_apps.decoding import DecodingResult
from attention_apps.decoding.ctc import align_ctc, ctc_prefix_scorer
from attention_apps.decoding.scorers import NgramModel
from attention_apps.models.moonshine_encoder import MIN_SAMPLES, SAMPLES_PER_FRAME
from attention_apps.preprocessing.audio import SAMPLE_RATE
from attention_apps.preprocessing.audio_features import envelope, log_mel, loud_frames
from attention_apps.preprocessing.sub_words import SubWords
from attention_apps.preprocessing.text import normalize_transcript
from attention_apps.preprocessing.vocabulary import Vocabulary

LANGUAGE_MODEL = "language_model.txt"
# The number of feature frames per position of the encoder that spells.
REDUCTION = 4
# Outputs that a transcript shows and an exported model does not.
_SHOWN = ("envelope", "num_frames", "num_positions")


class SpeechCodec(Codec):
    """Makes transcripts of tokens, with the time and the confidence of each word.

    Attributes:
        frame_seconds: the duration of one position of the encoder.
        token_name: the word for a token.
        counts_end: whether the end token counts in the confidence of a text.
        split: converts a normalized transcript to token ids, without start and end.
        tokens: graph code that returns the text of each id, with spaces. Padding, start and end are empty.
        write: graph code that joins the tokens of each hypothesis, `(batch, num_best, target)`.
    """

    result = Transcript
    frame_seconds: float
    token_name: str
    counts_end = False
    split: Callable[[str], list[int]]
    tokens: Callable[[tf.Tensor], tf.Tensor]
    write: Callable[[tf.Tensor], tf.Tensor]

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
        """Return the token ids of a transcript, without start and end."""
        return self.split(normalize_transcript(text, self.config.case, self.config.punctuation))

    @abstractmethod
    def align(self, source: Tensors, memory: Tensors, forced: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
        """Graph code: return where each token was heard, and its confidence.

        Returns:
            The first encoder position of each token and the position after its last, `(batch, target, 2)`, and
            confidences from 0 to 1, `(batch, target)`.
        """

    def texts(self, token_ids: tf.Tensor, source: Tensors) -> tf.Tensor:
        return tf.strings.strip(tf.strings.regex_replace(self.write(token_ids), r"[\s\p{Z}]+", " "))

    def outputs(self, source: Tensors, memory: Tensors, result: DecodingResult, forced: Tensors) -> Tensors:
        token_ids, attention = forced["token_ids"], forced["attention"]
        is_written = token_ids > END
        spans, confidences = self.align(source, memory, forced)
        tokens = self.tokens(token_ids)
        loud, num_frames = loud_frames(source["waveform"], source["length"])
        seconds = tf.cast(source["length"], tf.float64) / SAMPLE_RATE
        is_counted = is_written | (token_ids == END) if self.counts_end else is_written
        sure = calibrated(confidences, is_counted, self.config.confidence)
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
        made = []
        for source, outputs in parts:
            start, end = source.place
            if outputs is None:  # nothing is heard
                made.append(TranscriptPart(start, end))
                continue
            answer = answer_fields(outputs)
            attention = answer.pop("attention")[:, : outputs["num_positions"]]
            columns = (outputs[name].tolist() for name in ("words", "start", "end", "word_confidence"))
            words = [
                SpokenWord(word.decode(), round(start + begin, 3), round(start + stop, 3), round(sure, 4))
                for word, begin, stop, sure in zip(*columns, strict=True)
                if word
            ]
            if answer["confidence"] < options.min_confidence:  # the text is withheld
                answer["tokens"], attention, words = [], attention[:0], []
                answer["alternatives"][0] = ("", answer["score"])
            heard = outputs["envelope"][: outputs["num_frames"]].astype(np.float16)
            made.append(TranscriptPart(start, end, attention=attention, words=words, envelope=heard, **answer))
        return Transcript(made, self.frame_seconds, self.config.confidence.threshold, source=reading.item)

    def serve(self, outputs: Tensors, context: Tensors, options: TranscriptOptions) -> Tensors:
        """Return the outputs of an export. A silent recording has one hypothesis, the empty text, with a score of 0."""
        outputs = {name: tensor for name, tensor in outputs.items() if name not in _SHOWN}
        status, confidence = context["status"], outputs["confidence"]
        is_unclear = (status == OK) & (confidence < options.min_confidence)
        status = tf.where(is_unclear, UNCLEAR, status)
        is_best = tf.range(tf.shape(outputs["score"])[1]) == 0
        is_empty = (status == SILENT) | (status == TOO_SHORT)
        ranks = {name: outputs[name] for name in ("text", "score")}
        cleared = clear_rows(outputs, status != OK)
        no_score = tf.where(is_best & is_empty[:, tf.newaxis], 0.0, cleared["score"])
        cleared["text"] = tf.where(is_unclear[:, tf.newaxis] & ~is_best, ranks["text"], cleared["text"])
        cleared["score"] = tf.where(is_unclear[:, tf.newaxis], ranks["score"], no_score)
        cleared["confidence"] = tf.where(is_unclear, confidence, cleared["confidence"])
        cleared["unsure"] = cleared["unsure"] | (is_unclear & (confidence > 0))  # as live
        return {**cleared, "status": status}


class LetterCodec(SpeechCodec):
    """Spells transcripts.

    CTC says at which positions each letter was heard; where it finds no alignment, attention does.
    """

    token_name = "letter"

    def __init__(self, config: RecognizerConfig, vocabulary: Vocabulary):
        super().__init__(config, vocabulary)
        self.language_model: NgramModel | None = None
        self.frame_seconds = REDUCTION * config.features.hop
        self.split, self.tokens = vocabulary.encode, vocabulary.strings
        self.write = lambda token_ids: tf.strings.reduce_join(vocabulary.strings(token_ids), axis=2)

    def fit_language_model(self, texts: Iterable[str], order: int) -> None:
        """Count the n-grams of letters of texts, for searches with a `language_model_weight`."""
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

    def align(self, source: Tensors, memory: Tensors, forced: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
        letters = tf.where(forced["token_ids"] > END, forced["token_ids"], 0)
        num_letters = tf.math.count_nonzero(letters, axis=1, dtype=tf.int32)
        num_positions = tf.math.count_nonzero(memory["mask"], axis=1, dtype=tf.int32)
        log_probs = tf.nn.log_softmax(tf.cast(memory["ctc_logits"], tf.float32))  # (B, S, V)
        spans = token_spans(forced["attention"], *align_ctc(log_probs, num_positions, letters, num_letters))
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


class SubWordCodec(SpeechCodec):
    """Writes sub-words, which attention aligns with the recording."""

    token_name = "sub-word"
    counts_end = True  # where it repeats itself, the end is unlikely
    frame_seconds = SAMPLES_PER_FRAME / SAMPLE_RATE

    def __init__(self, config: RecognizerConfig, vocabulary: Vocabulary):
        super().__init__(config, vocabulary)
        sub_words = SubWords(vocabulary)
        self.split, self.tokens, self.write = sub_words.encode, sub_words.spell, sub_words.decode

    def prepare(self, source: Tensors) -> Tensors:
        """Pad recordings that are too short for one position, and scale down samples beyond 1."""
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

    def outputs(self, source: Tensors, memory: Tensors, result: DecodingResult, forced: Tensors) -> Tensors:
        """Clear the best text if the decoder is sure that there is no speech."""
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
        return token_spans(forced["attention"]), token_probabilities(forced)
