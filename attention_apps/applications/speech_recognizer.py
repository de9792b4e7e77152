"""Listen, Attend and Spell."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

from attention_apps.applications.application import Application, share_of_unknown
from attention_apps.applications.heard_letters import HeardLetters
from attention_apps.applications.listening_progress import ListeningProgress
from attention_apps.applications.recognizer_config import RecognizerConfig, TranscriptionOptions
from attention_apps.applications.recording_pieces import batch_pieces, cut_into_pieces, group_pieces
from attention_apps.applications.speech_examples import SpeechExamples, waveform_features
from attention_apps.applications.transcript import Transcript, TranscriptPart
from attention_apps.applications.transcript_graph import TranscriptGraph
from attention_apps.applications.word_times import words_with_times
from attention_apps.decoding import DecodingResult
from attention_apps.decoding.ctc_prefix_scorer import ctc_prefix_scorer
from attention_apps.decoding.ngram_model import NgramModel
from attention_apps.metrics import MetricResult, cer, wer
from attention_apps.models import Listener, Seq2Seq
from attention_apps.models.decoder_config import make_decoder
from attention_apps.models.tokens import END, START
from attention_apps.preprocessing.audio import SAMPLE_RATE, audio_seconds
from attention_apps.preprocessing.characters import detokenize, normalise, tokenize
from attention_apps.preprocessing.log_mel import num_frames
from attention_apps.preprocessing.pauses import loud_frames
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.training.data_check import DataCheck
from attention_apps.training.datasets import Batches

LANGUAGE_MODEL = "language_model.txt"
# How many frames of the features make one of the listener.
REDUCTION = 4


class SpeechRecognizer(Application):
    """Spells what is said in a recording, and says when each word was.

    Listens with a `Listener`, which attention and CTC share, and searches for the text that both agree on. A recording
    longer than `max_seconds` of the configuration is cut at pauses. One with nothing in it that the recognizer is sure
    of (silence, noise, less than a tenth of a second) has an empty text; see `TranscriptionOptions.min_confidence`.

    Example:
        recognizer = SpeechRecognizer.from_preset("listen_attend_spell_an4")
        transcript = recognizer.transcribe("call.wav")
        transcript.text, transcript.words   # ("GO", [SpokenWord("GO", 0.31, 0.62, 0.97)])

    Reference:
        Chan et al. 2016, "Listen, Attend and Spell"; Chorowski et al. 2015, "Attention-Based Models for Speech
        Recognition"; Hori et al. 2017, "Joint CTC/Attention Decoding for End-to-End Speech Recognition".
    """

    task = "speech_recognition"
    config_class = RecognizerConfig
    columns = ("audio", "transcript")
    default_preset = "listen_attend_spell_an4"
    language_model: NgramModel | None = None

    def transcribe(
        self,
        recordings: Any,
        options: TranscriptionOptions | None = None,
        sample_rate: float | None = None,
        quiet: bool = False,
    ) -> Any:
        """Transcribes one recording, or each of a list: paths, the bytes of files, or arrays with `sample_rate`.

        A single recording that cannot be read raises an error; in a list it gets a transcript with its `error`. A long
        one has a progress bar on stderr where that is a terminal, unless `quiet`.

        Returns:
            A `Transcript`, or a list of them in the order of the recordings.
        """
        if isinstance(recordings, list | tuple):
            return list(self.transcripts(recordings, options, sample_rate, quiet))
        (transcript,) = self.transcripts([recordings], options, sample_rate, quiet)
        if transcript.error is not None:
            raise ValueError(transcript.error)
        return transcript

    def transcripts(
        self,
        recordings: Iterable[Any],
        options: TranscriptionOptions | None = None,
        sample_rate: float | None = None,
        quiet: bool = False,
    ) -> Iterator[Transcript]:
        """As `transcribe`, one after the other: for more, or longer, recordings than fit into memory."""
        self._check_trained()
        options = self.config.decoding if options is None else options
        longest = self.config.max_seconds
        pieces = (piece for recording in recordings for piece in cut_into_pieces(recording, sample_rate, longest))
        parts: list[TranscriptPart] = []
        with ListeningProgress(quiet) as progress:
            for piece, part in self._heard_pieces(pieces, options):
                if not piece.is_last:
                    parts.append(part)
                    progress.update(piece.source, part.end)
                    continue
                progress.end()
                if piece.error is not None:
                    yield Transcript.failed(piece.source, piece.error)
                else:
                    yield Transcript([*parts, part], self._frame_seconds, source=piece.source)
                parts = []

    def fit_language_model(self, texts: Iterable[str], order: int = 6) -> None:
        """Makes a letter model from texts, which a search with a `language_model_weight` listens to.

        It knows the letters of the recognizer, and is saved along with it.
        """
        self._check_trained()
        letters = (self.vocabulary.encode(self._letters(text)) for text in texts)
        self.language_model = NgramModel.fit(letters, len(self.vocabulary), order)
        self._graphs = {}

    # Listening

    @property
    def _frame_seconds(self):
        return REDUCTION * self.config.features.hop

    def _heard_pieces(self, pieces, options):
        """Each piece with its part, batches being made of pieces that are alike in length."""
        for group in group_pieces(pieces, self.config.max_seconds):
            yield from zip(group, self._transcribe_pieces(group, options), strict=True)

    def _transcribe_pieces(self, pieces, options):
        """A part for each piece, `None` where there is nothing to listen to because of an error."""
        parts: list[TranscriptPart | None] = [self._silent_part(piece) for piece in pieces]
        for batch in batch_pieces(pieces):
            written = self._transcribe_batch([pieces[number] for number in batch], options)
            for number, part in zip(batch, written, strict=True):
                parts[number] = part
        return parts

    def _silent_part(self, piece):
        if piece.error is not None:
            return None
        features = np.zeros((1, self.config.features.num_mels), np.float16)
        end = piece.start + piece.seconds
        return TranscriptPart(piece.start, end, 0.0, [], [("", 0.0)], np.zeros((0, 1), np.float32), [], 0.0, features)

    def _transcribe_batch(self, pieces, options):
        features = [waveform_features(piece.waveform, self.config.features) for piece in pieces]
        source = _pad(features)
        result = self._search(source, options)
        texts, scores = self._texts(result, source), result.scores.numpy()
        for row, heard in enumerate(self._explain(source, result)):
            ranked = [(text, float(score)) for text, score in zip(texts[row], scores[row], strict=True)]
            yield self._part(pieces[row], features[row], heard, ranked, options)

    def _part(self, piece, features, heard, ranked, options):
        if heard.confidence < options.min_confidence:
            heard, ranked = heard.forgotten(), [("", ranked[0][1]), *ranked[1:]]
        words = words_with_times(
            heard.letters,
            heard.spans,
            heard.confidences,
            self._frame_seconds,
            loud_frames(piece.waveform),
            piece.seconds,
        )
        return TranscriptPart(
            start=piece.start,
            end=piece.start + piece.seconds,
            score=ranked[0][1],
            tokens=heard.letters,
            alternatives=ranked,
            attention=heard.attention,
            words=[word._replace(start=word.start + piece.start, end=word.end + piece.start) for word in words],
            confidence=heard.confidence,
            features=features.astype(np.float16),
        )

    def _explain(self, source, result):
        """What there is to know of the best text of each item, from one teacher-forced pass over it."""
        best = result.token_ids[:, 0, : tf.maximum(tf.reduce_max(result.lengths[:, 0]), 1)]
        attention, log_probs, ctc_log_probs = (part.numpy() for part in self._explain_graph(source, best))
        frames = -(-np.asarray(source["mask"]).sum(axis=1) // REDUCTION)
        for row, ids in enumerate(best.numpy()):
            written, positions = ids > END, int(frames[row])
            yield HeardLetters.of(
                [self.vocabulary.tokens[index] for index in ids[written]],
                ids[written],
                attention[row, written, :positions],
                log_probs[row, written],
                ctc_log_probs[row, :positions],
            )

    def _explain_graph(self, source, token_ids):
        signature = [*self._search_signature(source), tf.TensorSpec((None, None), tf.int32)]
        return self._graph("explanation", self._teacher_force, signature)(source, token_ids)

    def _teacher_force(self, source, token_ids):
        return self._teacher_force_memory(self.model.encode(source), token_ids)

    def _teacher_force_memory(self, memory, token_ids):
        """Weights `(batch, time, source)`, log-probabilities of the letters `(batch, time)`, and those of CTC."""
        tokens = tf.concat([tf.fill(tf.shape(token_ids[:, :1]), START), token_ids[:, :-1]], axis=1)
        logits, attention = self.model.decoder(tokens, memory, return_attention=True)
        log_probs = tf.gather(tf.nn.log_softmax(tf.cast(logits, tf.float32)), token_ids, axis=2, batch_dims=2)
        return attention, log_probs, tf.nn.log_softmax(tf.cast(memory["ctc_logits"], tf.float32))

    # What `Application` asks for

    def _make_model(self):
        config, size = self.config.encoder, len(self.vocabulary)
        encoder = Listener(
            size,
            units=config.units,
            num_layers=config.num_layers,
            front_end=config.front_end,
            filters=config.filters,
            dropout=config.dropout,
            name="encoder",
        )
        model = Seq2Seq(encoder, make_decoder(self.config.decoder, size))
        mels = self.config.features.num_mels
        model.build({"source": {"features": (None, None, mels), "mask": (None, None)}, "tokens": (None, None)})
        return model

    def _path_columns(self):
        return ("audio",)

    def _data_check(self):
        return DataCheck(
            "audio",
            "transcript",
            probe=audio_seconds,
            tokenize=self._letters,
            vocabulary=self.vocabulary,
            max_source_length=self.config.max_seconds,
            max_target_length=self.config.decoding.max_length - 1,
            list_unknown=True,
            reject=self._does_not_fit,
        )

    def _letters(self, text):
        return tokenize(normalise(text, self.config.case, self.config.punctuation))

    def _does_not_fit(self, row, seconds):
        letters = self._letters(row["transcript"])
        needed = len(letters) + sum(left == right for left, right in pairwise(letters))
        frames = -(-int(num_frames(int(seconds * SAMPLE_RATE), self.config.features)) // REDUCTION)
        if needed <= frames:
            return None
        return f"`transcript` needs {needed} frames for its {len(letters)} letters, and {seconds:.2f} s have {frames}"

    def _learn_words(self, rows):
        super()._learn_words(rows)
        if self.language_model is not None and self.language_model.vocabulary_size != len(self.vocabulary):
            self.language_model = None
        if self.config.language_model_order is not None:
            self.fit_language_model((row["transcript"] for row in rows), self.config.language_model_order)

    def _make_vocabulary(self, rows):
        return Vocabulary.build(self._letters(row["transcript"]) for row in rows)

    def _new_words(self, rows):
        return self._make_vocabulary(rows).tokens[4:]

    def _unknown_rates(self, rows):
        return {"transcript": share_of_unknown((self._letters(row["transcript"]) for row in rows), self.vocabulary)}

    def _examples(self, rows, cache, quiet, training):
        return SpeechExamples(self.config, self.vocabulary, rows, cache, quiet, training)

    def _batches(self, examples, training_config, training):
        return Batches(
            examples,
            examples.signature,
            batch_size=training_config.batch_size,
            max_batch_length=training_config.max_batch_length,
            lengths=examples.lengths,
            seed=training_config.seed,
            shuffle=training,
            short_first_epochs=training_config.short_first_epochs if training else 0,
            select=examples.select if training else None,
            augment=examples.augment if training else None,
        )

    def _extra_loss(self):
        return self.config.ctc

    def _reward_metric(self):
        return "wer"

    def _sampled_texts(self, token_ids, examples, rows):
        return [detokenize(self.vocabulary.decode(ids)) for ids in token_ids]

    def _signatures(self, options):
        return TranscriptGraph(self, options).signatures()

    def _search_options(self, options):
        return replace(super()._search_options(options), min_confidence=0.0)  # no part of the graph

    def _search_signature(self, source):
        mels = self.config.features.num_mels
        features = tf.TensorSpec((None, None, mels), tf.float32)
        return [{"features": features, "mask": tf.TensorSpec((None, None), tf.bool)}]

    def _scorers(self, memory, options):
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

    def _files(self):
        return {} if self.language_model is None else {LANGUAGE_MODEL: self.language_model.to_text()}

    def _take_files(self, texts):
        if LANGUAGE_MODEL in texts:
            self.language_model = NgramModel.from_text(texts[LANGUAGE_MODEL], len(self.vocabulary))

    def _texts(self, result: DecodingResult, source):
        return [
            [detokenize(self.vocabulary.decode(ids.tolist())) for ids in hypotheses]
            for hypotheses in result.token_ids.numpy()
        ]

    def _example_texts(self, result, source, examples, rows, options):
        texts, options = self._texts(result, source), self.config.decoding if options is None else options
        believed = [heard.confidence >= options.min_confidence for heard in self._explain(source, result)]
        return [row if is_believed else ["", *row[1:]] for row, is_believed in zip(texts, believed, strict=True)]

    def _metrics(self, texts, references, sources) -> dict[str, MetricResult]:
        return {"wer": wer(texts, references), "cer": cer(texts, references)}


def _pad(features):
    longest = max(map(len, features))
    padded = np.zeros((len(features), longest, features[0].shape[1]), np.float32)
    mask = np.zeros((len(features), longest), bool)
    for row, one in enumerate(features):
        padded[row, : len(one)], mask[row, : len(one)] = one, True
    return {"features": tf.constant(padded), "mask": tf.constant(mask)}
