"""What a recognizer heard in a recording."""

import os
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from attention_apps.plots.speech import SpeechAlignment, draw_speech, write_speech


class SpokenWord(NamedTuple):
    """A word, the seconds at which it begins and ends, and how sure the recognizer is, from 0 to 1."""

    word: str
    start: float
    end: float
    confidence: float


@dataclass(frozen=True, eq=False)
class TranscriptPart:
    """What was heard in a piece of a recording, from `start` to `end` in seconds; for the rest see `Transcript`.

    `features` are the log-mel features `(time, mels)` that were listened to.
    """

    start: float
    end: float
    score: float
    tokens: list[str]
    alternatives: list[tuple[str, float]]
    attention: np.ndarray = field(repr=False)
    words: list[SpokenWord]
    confidence: float
    features: np.ndarray = field(repr=False)


@dataclass(frozen=True, eq=False)
class Transcript:
    """A transcript and how it came about.

    Attributes:
        parts: what was heard in each piece of the recording; a short one is one piece.
        frame_seconds: how much of the recording one position of the attention stands for.
        error: why there is no transcript, or `None`.
    """

    parts: list[TranscriptPart]
    frame_seconds: float = 0.04
    error: str | None = None
    source: Any = field(default=None, repr=False)

    @classmethod
    def failed(cls, source: Any, error: str) -> Self:
        """The answer to what is no recording."""
        return cls([], error=error, source=source)

    @property
    def text(self) -> str:
        """What was said; empty where nothing was, or nothing that the recognizer is sure enough of."""
        return self.alternatives[0][0] if self.parts else ""

    @property
    def score(self) -> float:
        """What the search ranked it by, the sum over the pieces; more is better."""
        return float(sum(part.score for part in self.parts)) if self.parts else float("-inf")

    @property
    def confidence(self) -> float:
        """The mean confidence over the letters, from 0 to 1; 0 where there are none."""
        letters = [len(part.tokens) for part in self.parts]
        return float(np.average([part.confidence for part in self.parts], weights=letters)) if sum(letters) else 0.0

    @property
    def tokens(self) -> list[str]:
        """The letters that were written, spaces included."""
        tokens: list[str] = []
        for part in self.parts:
            tokens += [" "] * bool(tokens and part.tokens) + part.tokens
        return tokens

    @property
    def words(self) -> list[SpokenWord]:
        """Each word, when it was said, and how sure that is."""
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
    def attention(self) -> np.ndarray:
        """`(tokens, time)`, how much each stretch of `frame_seconds` was listened to for each letter.

        Made anew at each call: large for a long recording, whose `parts` have the pieces.
        """
        weights = np.zeros((len(self.tokens), int(np.ceil(self.seconds / self.frame_seconds))), np.float32)
        row = 0
        for part in self.parts:
            row += bool(row and part.tokens)
            first = round(part.start / self.frame_seconds)
            piece = part.attention[:, : weights.shape[1] - first]
            weights[row : row + len(part.tokens), first : first + piece.shape[1]] = piece
            row += len(part.tokens)
        return weights

    def plot(self, path: str | os.PathLike) -> None:
        """Draws the spectrogram, below it what was listened to for each letter, and the words on the time axis."""
        draw_speech(self._alignments(), path)

    def to_html(self, path: str | os.PathLike) -> None:
        """Writes a page on which each word shows when it was said."""
        write_speech(self._alignments(), path)

    def to_srt(self) -> str:
        """Subtitles in the SubRip format, each of some words that follow one another without a long pause."""
        lines = _subtitles(self.words)
        return "\n".join(
            f"{number}\n{_srt_time(words[0].start)} --> {_srt_time(words[-1].end)}\n"
            f"{' '.join(word.word for word in words)}\n"
            for number, words in enumerate(lines, 1)
        )

    def _alignments(self):
        return [
            SpeechAlignment(
                part.start, part.end, part.features, part.tokens, part.attention, part.words, self.frame_seconds
            )
            for part in self.parts
        ]


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


def _srt_time(seconds: float) -> str:
    milliseconds = round(seconds * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{milliseconds // 1000:02},{milliseconds % 1000:03}"
