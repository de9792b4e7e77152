"""A transcript, with the time and the confidence of each word: the result, and the graph code that finds the times."""

import html
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from attention_apps.applications.outputs import Result
from attention_apps.plots.speech import SpeechAlignment, draw_speech, write_speech
from attention_apps.preprocessing.audio_features import FRAME_SECONDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# CTC tends to emit a letter in its middle: a word may begin this many seconds before its first letter, and end this
# many after its last, as far as the recording is loud there.
MAX_BEFORE, MAX_AFTER = 0.35, 0.35
_MIN_CONFIDENCE = 1e-9
# Numbers in the attention of a whole transcript, which grows with the square of the recording's length.
_MAX_ATTENTION = 1 << 24


class SpokenWord(NamedTuple):
    """A word, the seconds at which it begins and ends, and how sure the recognizer is, from 0 to 1."""

    word: str
    start: float
    end: float
    confidence: float


@dataclass(frozen=True, eq=False)
class TranscriptPart:
    """The transcript of a piece of a recording, from `start` to `end` in seconds; for the rest see `Transcript`.

    By default nothing is heard in it. `envelope` has the lowest and the highest sample of each 10 ms, `(frames, 2)`.
    """

    start: float
    end: float
    score: float = 0.0
    tokens: list[str] = field(default_factory=list)
    alternatives: list[tuple[str, float]] = field(default_factory=lambda: [("", 0.0)])
    attention: np.ndarray = field(default_factory=lambda: np.zeros((0, 1), np.float32), repr=False)
    words: list[SpokenWord] = field(default_factory=list)
    confidence: float = 0.0
    envelope: np.ndarray = field(default_factory=lambda: np.zeros((1, 2), np.float16), repr=False)


@dataclass(frozen=True, eq=False, repr=False)
class Transcript(Result):
    """A transcript and how it came about. `text` is empty in silence, and where the confidence is too low.

    Attributes:
        parts: the transcripts of the pieces of the recording; a short recording is one piece.
        frame_seconds: how much of the recording one position of the attention stands for.
        threshold: the confidence below which the transcript is `unsure`.
        error: why there is no transcript, or `None`.
        source: the item that was transcribed.
    """

    parts: list[TranscriptPart] = field(default_factory=list)
    frame_seconds: float = 0.04
    threshold: float = 0.0
    error: str | None = None
    source: Any = None

    @property
    def score(self) -> float:
        """What the search ranked it by, the sum over the pieces; more is better."""
        return float(sum(part.score for part in self.parts)) if self.parts else float("-inf")

    @property
    def confidence(self) -> float:
        """The mean confidence over the tokens, from 0 to 1; if the text was withheld, the confidence of that text."""
        heard = [part for part in self.parts if part.tokens] or self.parts
        if not heard:
            return 0.0
        return float(np.average([part.confidence for part in heard], weights=[len(part.tokens) or 1 for part in heard]))

    @property
    def unsure(self) -> bool:
        """Whether the confidence is below the threshold of the preset, or so low that the text was withheld."""
        return self.confidence < self.threshold if self.tokens else self.confidence > 0

    @property
    def tokens(self) -> list[str]:
        """The letters or sub-words of the text, spaces included."""
        tokens: list[str] = []
        for part in self.parts:
            tokens += [" "] * bool(tokens and part.tokens) + part.tokens
        return tokens

    @property
    def words(self) -> list[SpokenWord]:
        """The words with their times and confidences."""
        return [word for part in self.parts for word in part.words]

    @property
    def alternatives(self) -> list[tuple[str, float]]:
        """Text and score of each hypothesis asked for, best first; a silent piece has one, the empty text."""
        count = max((len(part.alternatives) for part in self.parts), default=0)
        ranks = (
            [part.alternatives[min(rank, len(part.alternatives) - 1)] for part in self.parts] for rank in range(count)
        )
        return [(" ".join(text for text, _ in rank if text), float(sum(score for _, score in rank))) for rank in ranks]

    @property
    def seconds(self) -> float:
        """How long the recording is."""
        return self.parts[-1].end if self.parts else 0.0

    @property
    def attention(self) -> np.ndarray | None:
        """`(tokens, time)`: how much each stretch of `frame_seconds` was attended to for each token.

        Computed at each call. `None` if it has more than 16 million numbers: use the attention of each part.
        """
        shape = len(self.tokens), int(np.ceil(self.seconds / self.frame_seconds))
        if math.prod(shape) > _MAX_ATTENTION:
            return None
        weights = np.zeros(shape, np.float32)
        row = 0
        for part in self.parts:
            row += bool(row and part.tokens)
            first = round(part.start / self.frame_seconds)
            piece = part.attention[:, : weights.shape[1] - first]
            weights[row : row + len(part.tokens), first : first + piece.shape[1]] = piece
            row += len(part.tokens)
        return weights

    def plot(self, path: str | os.PathLike | None = None) -> "Figure":
        """Draw the waveform with the words below it, each where it was said."""
        return draw_speech(self._alignments(), path)

    def to_html(self, path: str | os.PathLike | None = None) -> str:
        """Write a page with the words below the waveform and a table of their times."""
        return write_speech(self._alignments(), path)

    def to_srt(self) -> str:
        """Subtitles in the SubRip format, each of some words that follow one another without a long pause."""
        return "\n".join(
            f"{number}\n{times}\n{line}\n" for number, (times, line) in enumerate(_subtitles(self.words, ","), 1)
        )

    def to_vtt(self) -> str:
        """The same subtitles in the WebVTT format of web pages."""
        cues = (f"\n{times}\n{html.escape(line, False)}\n" for times, line in _subtitles(self.words, "."))
        return "WEBVTT\n" + "".join(cues)

    def _alignments(self):
        return [SpeechAlignment(part.start, part.end, part.envelope, part.words) for part in self.parts]


# Letters of a subtitle at most, and the pause in seconds that begins a new one.
_SUBTITLE_LETTERS = 42
_SUBTITLE_PAUSE = 1.0


def _subtitles(words: list[SpokenWord], point: str) -> Iterator[tuple[str, str]]:
    """The times of each subtitle, such as `00:00:01.250 --> 00:00:02.000` for the point `.`, and its text."""
    subtitles: list[list[SpokenWord]] = []
    for word in words:
        last = subtitles[-1] if subtitles else []
        letters = sum(len(other.word) + 1 for other in last) + len(word.word)
        if last and letters <= _SUBTITLE_LETTERS and word.start - last[-1].end < _SUBTITLE_PAUSE:
            last.append(word)
        else:
            subtitles.append([word])
    for words in subtitles:
        times = []
        for seconds in (words[0].start, words[-1].end):
            minutes, milliseconds = divmod(round(seconds * 1000), 60_000)
            clock = f"{minutes // 60:02}:{minutes % 60:02}:{milliseconds // 1000:02}"
            times.append(f"{clock}{point}{milliseconds % 1000:03}")
        yield " --> ".join(times), " ".join(word.word for word in words)


def token_spans(
    attention: tf.Tensor, alignment: tf.Tensor | None = None, is_aligned: tf.Tensor | None = None
) -> tf.Tensor:
    """The positions of each token, `(batch, tokens, 2)`: CTC's, or attention's where CTC finds no alignment.

    Attention's is the one that a token attends to most, never going back.

    Args:
        attention: `(batch, tokens, positions)`.
        alignment: CTC's, `(batch, tokens, 2)`, for models that have it.
        is_aligned: whether there is one, `(batch,)`.
    """
    looked_at = tf.argmax(attention, axis=2, output_type=tf.int32)
    is_before = tf.linalg.band_part(tf.ones([tf.shape(attention)[1]] * 2, tf.bool), -1, 0)
    middles = tf.reduce_max(tf.where(is_before, looked_at[:, tf.newaxis], 0), axis=2)
    spans = tf.stack([middles, middles + 1], axis=2)
    if alignment is None or is_aligned is None:
        return spans
    return tf.where(is_aligned[:, tf.newaxis, tf.newaxis], alignment, spans)


def spoken_words(
    tokens: tf.Tensor,
    spans: tf.Tensor,
    confidences: tf.Tensor,
    frame_seconds: float,
    loud: tf.Tensor,
    num_frames: tf.Tensor,
    seconds: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """The words among the tokens, with their times in seconds.

    Args:
        tokens: letters or sub-words with spaces between words, and empty strings after the last, `(batch, tokens)`.
        spans: the positions of each token, `(batch, tokens, 2)`.
        confidences: of each token, from 0 to 1, `(batch, tokens)`.
        frame_seconds: of one position.
        loud: whether there is sound in each `FRAME_SECONDS` of the recording, `(batch, frames)`.
        num_frames: how many of those there are, `(batch,)`.
        seconds: of each recording, `(batch,)`, float64.

    Returns:
        A dict of tensors `(batch, words)`: `words`, `start`, `end` and `word_confidence`, with empty strings and zeros
        after the last word.
    """
    spelled = tf.strings.strip(tokens)
    is_part = spelled != ""
    follows_part = tf.pad(is_part[:, :-1], [[0, 0], [1, 0]])
    begins = is_part & (tf.strings.regex_full_match(tokens, r"(?s)\s.*") | ~follows_part)
    number = tf.cumsum(tf.cast(begins, tf.int32), axis=1)  # of the word that each token is of, from 1
    counts = number[:, -1]
    batch, most = tf.shape(tokens)[0], tf.maximum(tf.reduce_max(counts), 0)
    words = tf.boolean_mask(tf.range(batch)[:, tf.newaxis] * most + number - 1, is_part)

    def over_words(reduce, of_tokens):
        return tf.reshape(reduce(tf.boolean_mask(of_tokens, is_part), words, batch * most), [batch, most])

    # Punctuation has no sound: it counts only in a word that has nothing else.
    is_sound = tf.strings.regex_full_match(tokens, r"(?s).*[\pL\pN\pM\x80-\xff].*")
    has_sound = over_words(tf.math.unsorted_segment_max, tf.cast(is_sound, tf.int32)) > 0
    has_sound = tf.pad(has_sound, [[0, 0], [1, 0]])  # by the number of the word
    is_heard = is_sound | ~tf.gather(has_sound, number, batch_dims=1)
    first = over_words(tf.math.unsorted_segment_min, tf.where(is_heard, spans[..., 0], spans.dtype.max))
    end = over_words(tf.math.unsorted_segment_max, tf.where(is_heard, spans[..., 1], spans.dtype.min))
    logs = tf.math.log(tf.maximum(confidences, _MIN_CONFIDENCE))
    is_word = tf.sequence_mask(counts, most)
    start, end = (tf.where(is_word, tf.cast(one, tf.float64) * frame_seconds, 0.0) for one in (first, end))
    times = _stretch(start, end, counts, _Sound(loud, num_frames), seconds[:, tf.newaxis])
    start, end = (tf.cast(tf.round(time * 1000) / 1000, tf.float32) for time in times)  # in full milliseconds
    return {
        "words": tf.strings.unicode_transcode(  # sub-words may be single bytes
            over_words(tf.strings.unsorted_segment_join, spelled), "UTF-8", "UTF-8", errors="replace"
        ),
        "start": tf.where(is_word, start, 0.0),
        "end": tf.where(is_word, end, 0.0),
        "word_confidence": tf.where(is_word, tf.exp(over_words(tf.math.unsorted_segment_mean, logs)), 0.0),
    }


def _stretch(start, end, counts, sound, seconds):
    """Words from where the sound begins to where it ends; two words without a pause share the time between them."""
    start, end = tf.minimum(start, seconds), tf.minimum(end, seconds)
    places = tf.range(tf.shape(start)[1])
    has_next = places < counts[:, tf.newaxis] - 1
    before = tf.where(places > 0, tf.roll(end, 1, axis=1), 0.0)
    after = tf.where(has_next, tf.roll(start, -1, axis=1), seconds)
    onset = sound.onset(start, tf.maximum(before, start - MAX_BEFORE), end)
    offset = sound.offset(end, tf.minimum(after, end + MAX_AFTER), start)
    next_onset = tf.roll(onset, -1, axis=1)
    shared = tf.where(has_next & (offset > next_onset), (offset + next_onset) / 2, 0.0)
    shared_before = tf.roll(shared, 1, axis=1)
    return tf.where(shared_before > 0, shared_before, onset), tf.where(shared > 0, shared, offset)


class _Sound:
    """The loud and the quiet stretches of recordings.

    Args:
        loud: boolean `(batch, frames)`.
        num_frames: how many of them are real, `(batch,)`.
    """

    def __init__(self, loud, num_frames):
        self.num_frames = num_frames[:, tf.newaxis]
        is_real = tf.sequence_mask(num_frames, tf.shape(loud)[1])
        # The numbers of the loud and the quiet frames, between -1 and numbers beyond all frames, (batch, frames + 2).
        frames, found = tf.range(tf.shape(loud)[1]), []
        for is_there in (loud, ~loud):
            places = tf.sort(tf.where(is_there & is_real, frames, tf.int32.max), axis=1)
            places = tf.pad(places, [[0, 0], [1, 0]], constant_values=-1)
            found.append(tf.pad(places, [[0, 0], [0, 1]], constant_values=tf.int32.max))
        self.loud, self.quiet = found

    def onset(self, start, earliest, latest):
        """Where the sound that is on at `start` began, or, where none is on, where the next one does."""
        frame = _to_frame(start)
        coming = _around(self.loud, frame)[1]
        is_off = (frame < self.num_frames) & (coming != frame)
        later = tf.where(coming < _to_frame(latest), _to_seconds(coming), start)
        began = tf.where(frame <= self.num_frames, _around(self.quiet, frame)[0] + 1, frame)
        return tf.where(is_off, later, tf.minimum(tf.maximum(_to_seconds(began), earliest), start))

    def offset(self, end, latest, earliest):
        """Where the sound that is on at `end` stops, or, where none is on, where the one before did."""
        frame = _to_frame(end)
        gone = _around(self.loud, frame)[0]
        is_off = (frame > 0) & (frame <= self.num_frames) & (gone != frame - 1)
        earlier = tf.where(gone >= _to_frame(earliest), _to_seconds(gone + 1), end)
        stops = tf.minimum(_around(self.quiet, frame)[1], self.num_frames)
        stops = tf.where(frame < self.num_frames, stops, frame)
        return tf.where(is_off, earlier, tf.maximum(tf.minimum(_to_seconds(stops), latest), end))


def _around(places, frame):
    """The last of the places before each frame, and the first that is not before it."""
    found = tf.searchsorted(places, frame, side="left")
    return tf.gather(places, found - 1, batch_dims=1), tf.gather(places, found, batch_dims=1)


def _to_frame(seconds):
    return tf.cast(tf.round(seconds / FRAME_SECONDS), tf.int32)


def _to_seconds(frame):
    return tf.cast(frame, tf.float64) * FRAME_SECONDS
