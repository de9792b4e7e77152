"""A transcript, with the time and the confidence of each word."""

import html
import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from attention_apps.applications.outputs import Result
from attention_apps.plots.speech import SpeechAlignment, draw_speech, write_speech

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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

    `envelope` has the lowest and the highest sample of each 10 ms of the piece, `(frames, 2)`.
    """

    start: float
    end: float
    score: float
    tokens: list[str]
    alternatives: list[tuple[str, float]]
    attention: np.ndarray = field(repr=False)
    words: list[SpokenWord]
    confidence: float
    envelope: np.ndarray = field(repr=False)

    @classmethod
    def silent(cls, start: float, end: float) -> Self:
        """A piece in which nothing is heard."""
        envelope = np.zeros((1, 2), np.float16)
        return cls(start, end, 0.0, [], [("", 0.0)], np.zeros((0, 1), np.float32), [], 0.0, envelope)


@dataclass(frozen=True, eq=False, repr=False)
class Transcript(Result):
    """A transcript and how it came about.

    Attributes:
        parts: the transcripts of the pieces of the recording; a short recording is one piece.
        frame_seconds: how much of the recording one position of the attention stands for.
        threshold: the confidence below which the transcript is `unsure`.
        error: why there is no transcript, or `None`.
        source: the item that was transcribed.
    """

    parts: list[TranscriptPart]
    frame_seconds: float = 0.04
    threshold: float = 0.0
    error: str | None = None
    source: Any = None

    @classmethod
    def failed(cls, source: Any, error: str) -> Self:
        """The result of a recording that could not be transcribed."""
        return cls([], error=error, source=source)

    @property
    def text(self) -> str:
        """What was said; empty in silence, and where the confidence is below `min_confidence`."""
        return self.alternatives[0][0] if self.parts else ""

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
            f"{number}\n{_time(words[0].start, ',')} --> {_time(words[-1].end, ',')}\n{_line(words)}\n"
            for number, words in enumerate(_subtitles(self.words), 1)
        )

    def to_vtt(self) -> str:
        """The same subtitles in the WebVTT format of web pages."""
        cues = (
            f"\n{_time(words[0].start, '.')} --> {_time(words[-1].end, '.')}\n{html.escape(_line(words), False)}\n"
            for words in _subtitles(self.words)
        )
        return "WEBVTT\n" + "".join(cues)

    def _alignments(self):
        return [SpeechAlignment(part.start, part.end, part.envelope, part.words) for part in self.parts]


# Letters of a subtitle at most, and the pause in seconds that begins a new one.
_SUBTITLE_LETTERS = 42
_SUBTITLE_PAUSE = 1.0


def _subtitles(words: list[SpokenWord]) -> list[list[SpokenWord]]:
    subtitles: list[list[SpokenWord]] = []
    for word in words:
        last = subtitles[-1] if subtitles else []
        letters = sum(len(other.word) + 1 for other in last) + len(word.word)
        if last and letters <= _SUBTITLE_LETTERS and word.start - last[-1].end < _SUBTITLE_PAUSE:
            last.append(word)
        else:
            subtitles.append([word])
    return subtitles


def _line(words: list[SpokenWord]) -> str:
    return " ".join(word.word for word in words)


def _time(seconds: float, point: str) -> str:
    milliseconds = round(seconds * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{milliseconds // 1000:02}{point}{milliseconds % 1000:03}"
