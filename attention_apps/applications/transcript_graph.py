"""Transcripts from the bytes of files to strings in one graph of core TensorFlow ops: what an export holds."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from attention_apps.applications.recognizer_config import TranscriptionOptions
from attention_apps.applications.recording_pieces import SHORTEST_SECONDS
from attention_apps.applications.word_times_graph import letter_spans_in_graph, mean_confidence, words_in_graph
from attention_apps.decoding import beam_search
from attention_apps.decoding.ctc_alignment_graph import align_ctc_in_graph
from attention_apps.models.tokens import END
from attention_apps.preprocessing.audio import HIGHEST_RATE, LOWEST_RATE, MAX_CHANNELS, SAMPLE_RATE
from attention_apps.preprocessing.log_mel import log_mel
from attention_apps.preprocessing.pauses_graph import is_silent_in_graph, loud_frames_in_graph
from attention_apps.preprocessing.wav_graph import AudioStatus, are_sounds, decode_wavs
from attention_apps.serving.signature import DEFAULT_SIGNATURE, Signature

WAVEFORM_SIGNATURE = "waveform"
OK, UNCLEAR, SILENT, TOO_SHORT = "ok", "unclear", "silent", "audio too short"
STATUSES = {
    AudioStatus.DECODED: OK,
    AudioStatus.BROKEN: "undecodable audio",
    AudioStatus.UNSUPPORTED: "unsupported audio format",
    AudioStatus.TOO_LONG: "audio too long",
}
_INPUT_NOTES = {
    "audio_bytes": (
        "the bytes of WAV files: PCM of 8, 16, 24 or 32 bits, or floats of 32 or 64; "
        f"1 to {MAX_CHANNELS} channels, which are averaged; {LOWEST_RATE:,} to {HIGHEST_RATE:,} samples a second, "
        f"resampled to {SAMPLE_RATE:,}; at most {{seconds:g}} seconds each"
    ),
    "waveform": f"samples from -1 to 1, {SAMPLE_RATE:,} a second, one channel; at most {{seconds:g}} seconds",
    "length": "how many of the samples are the recording's; what follows them is not heard",
}
_OUTPUT_NOTES = {
    "text": "transcripts, best first",
    "score": "what the transcripts are ranked by; more is better",
    "token_ids": "the best transcript's letters by their numbers, the end token 2 after them, then 0",
    "tokens": "the best transcript's letters, spaces among them, then empty strings",
    "attention": "for each of these letters, how much each stretch of {stretch:g} s was listened to",
    "words": "the best transcript's words, then empty strings",
    "start": "the second at which each word begins",
    "end": "the second at which each word ends",
    "word_confidence": "how sure each word is, from 0 to 1",
    "status": ", ".join(f"`{status}`" for status in (*STATUSES.values(), UNCLEAR, SILENT, TOO_SHORT)),
}


class _Letters(NamedTuple):
    """What is known of the letters of the best text of each item; see `HeardLetters`."""

    token_ids: tf.Tensor  # (B, T)
    attention: tf.Tensor  # (B, T, S)
    spans: tf.Tensor  # (B, T, 2)
    confidences: tf.Tensor  # (B, T)


class TranscriptGraph:
    """Graph code that transcribes a batch of recordings as `SpeechRecognizer.transcribe` does.

    A recording longer than the recognizer's `max_seconds` is not cut at pauses, but answered with a status.

    Args:
        recognizer: a trained `SpeechRecognizer`.
        options: of the search.

    Returns:
        Either way to call it, a dict: `text` and `score` `(batch, num_best)`, best first; of the best, `token_ids` and
        `tokens` `(batch, target)`, `attention` `(batch, target, source)`, and `words`, `start`, `end` and
        `word_confidence` `(batch, words)`; `status` `(batch,)`: one of `STATUSES`, `UNCLEAR`, `SILENT` or `TOO_SHORT`.
    """

    def __init__(self, recognizer: Any, options: TranscriptionOptions):
        self.recognizer = recognizer
        self.options = options
        self.max_samples = round(recognizer.config.max_seconds * SAMPLE_RATE)

    def read_files(self, audio_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        """Transcribes the bytes of WAV files, strings `(batch,)`."""
        waveform, lengths, status = decode_wavs(audio_bytes, self.max_samples)
        return self._transcribe(waveform, lengths, tf.gather(list(STATUSES.values()), status))

    def read_waveforms(self, waveform: tf.Tensor, length: tf.Tensor) -> dict[str, tf.Tensor]:
        """Transcribes `SAMPLE_RATE` samples a second, `(batch, samples)`, of which `length` `(batch,)` are real."""
        size = tf.shape(waveform)[1]
        lengths = tf.clip_by_value(length, 0, size)
        are_good = are_sounds(tf.where(tf.sequence_mask(lengths, size), waveform, 0.0))
        status = tf.where(are_good, OK, STATUSES[AudioStatus.BROKEN])
        status = tf.where(lengths > self.max_samples, STATUSES[AudioStatus.TOO_LONG], status)
        return self._transcribe(waveform, lengths, status)

    def signatures(self) -> dict[str, Signature]:
        """How the export is called."""
        values = {"seconds": self.recognizer.config.max_seconds, "stretch": self.recognizer._frame_seconds}
        notes = [{name: note.format(**values) for name, note in some.items()} for some in (_INPUT_NOTES, _OUTPUT_NOTES)]
        noise = np.random.default_rng(0).normal(0, 0.1, SAMPLE_RATE).astype(np.float32)
        contents = tf.audio.encode_wav(noise[:, np.newaxis], SAMPLE_RATE).numpy()
        files = {"audio_bytes": tf.TensorSpec([None], tf.string)}
        waveforms = {"waveform": tf.TensorSpec([None, None], tf.float32), "length": tf.TensorSpec([None], tf.int32)}
        example = {"waveform": [noise], "length": [len(noise)]}
        return {
            DEFAULT_SIGNATURE: Signature(self.read_files, files, {"audio_bytes": [contents]}, *notes),
            WAVEFORM_SIGNATURE: Signature(self.read_waveforms, waveforms, example, *notes),
        }

    def _transcribe(self, waveform, lengths, status):
        """Transcribes the items that are `OK` so far."""
        status = tf.where((status == OK) & is_silent_in_graph(waveform, lengths), SILENT, status)
        is_short = tf.cast(lengths, tf.float64) / SAMPLE_RATE < SHORTEST_SECONDS
        status = tf.where(((status == OK) | (status == SILENT)) & is_short, TOO_SHORT, status)
        lengths = tf.where(status == OK, lengths, 0)
        waveform = waveform[:, : tf.maximum(tf.reduce_max(lengths), 1)]
        result, letters = self._listen(waveform, lengths)
        confidence = mean_confidence(letters.confidences, letters.token_ids > END)
        status = tf.where((status == OK) & (confidence < self.options.min_confidence), UNCLEAR, status)
        return {**self._ranked(result, status), **self._best(letters, waveform, lengths, status), "status": status}

    def _listen(self, waveform, lengths):
        """The search's result, and what is known of the best text's letters."""
        recognizer, options = self.recognizer, self.options
        features, mask = log_mel(waveform, lengths, recognizer.config.features)
        memory = recognizer.model.encode({"features": features, "mask": mask})
        decoder, scorers = recognizer.model.decoder, recognizer._scorers(memory, options)
        result = beam_search(decoder.step, decoder.init_state(memory), options, scorers=scorers)
        best = result.token_ids[:, 0, : tf.maximum(tf.reduce_max(result.lengths[:, 0]), 1)]
        return result, self._explain(memory, best)

    def _explain(self, memory, token_ids):
        attention, log_probs, ctc_log_probs = self.recognizer._teacher_force_memory(memory, token_ids)
        letters = tf.where(token_ids > END, token_ids, 0)
        num_letters = tf.math.count_nonzero(letters, axis=1, dtype=tf.int32)
        num_frames = tf.math.count_nonzero(memory["mask"], axis=1, dtype=tf.int32)
        aligned = align_ctc_in_graph(ctc_log_probs, num_frames, letters, num_letters)
        spans = letter_spans_in_graph(*aligned, attention)
        of_letters = tf.gather(ctc_log_probs, letters, axis=2, batch_dims=1)  # (B, S, T)
        positions = tf.range(tf.shape(of_letters)[1])[:, tf.newaxis]
        is_inside = (positions >= spans[:, tf.newaxis, :, 0]) & (positions < spans[:, tf.newaxis, :, 1])
        loudest = tf.reduce_max(tf.where(is_inside, of_letters, float("-inf")), axis=1)
        return _Letters(token_ids, attention, spans, tf.exp((log_probs + loudest) / 2))

    def _ranked(self, result, status):
        """Texts and scores of all hypotheses; a recording with nothing on it has one, the empty text."""
        is_best = tf.range(tf.shape(result.scores)[1]) == 0
        status = status[:, tf.newaxis]
        was_heard, is_empty = (status == OK) | (status == UNCLEAR), (status == SILENT) | (status == TOO_SHORT)
        no_score = tf.where(is_best & is_empty, 0.0, float("-inf"))
        texts = tf.strings.reduce_join(tf.gather(self._tokens(), result.token_ids), axis=2)
        texts = tf.strings.strip(tf.strings.regex_replace(texts, r"[\s\p{Z}]+", " "))
        return {
            "text": tf.where((status == OK) | (was_heard & ~is_best), texts, ""),
            "score": tf.where(was_heard, result.scores, no_score),
        }

    def _best(self, letters, waveform, lengths, status):
        """All that there is to say of the best text, where it is believed."""
        token_ids = tf.where((status == OK)[:, tf.newaxis], letters.token_ids, 0)
        tokens = tf.gather(self._tokens(), token_ids)
        loud, num_frames = loud_frames_in_graph(waveform, lengths)
        seconds = tf.cast(lengths, tf.float64) / SAMPLE_RATE
        frame_seconds = self.recognizer._frame_seconds
        return {
            "token_ids": token_ids,
            "tokens": tokens,
            "attention": tf.where((token_ids > END)[..., tf.newaxis], letters.attention, 0.0),
            **words_in_graph(tokens, letters.spans, letters.confidences, frame_seconds, loud, num_frames, seconds),
        }

    def _tokens(self):
        """All letters by number, empty strings for padding, start and end."""
        tokens = self.recognizer.vocabulary.tokens
        return tf.constant(["" if index <= END else token for index, token in enumerate(tokens)])
