"""What a summarizer says of a text."""

import os
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from attention_apps.plots.alignment import Alignment, draw_alignments, write_alignments


@dataclass(frozen=True, eq=False)
class SummaryLine:
    """What was written for one passage; for the attributes see `Summary`.

    `attention` is `(tokens, end - start)`, and `passage` says from where to where among the tokens of the whole text
    the model read.
    """

    score: float
    tokens: list[str]
    alternatives: list[tuple[str, float]]
    attention: np.ndarray
    copied: list[bool]
    passage: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Summary:
    """A summary and how it came about.

    Attributes:
        lines: what was written for each passage that was read, in the order of the text.
        source_tokens: the words and punctuation of the whole text.
        separator: what stands between the lines in `text`.
        error: why there is no summary, or `None`.
    """

    lines: list[SummaryLine]
    source_tokens: list[str] = field(repr=False)
    separator: str = "\n"
    error: str | None = None
    source: Any = field(default=None, repr=False)

    @classmethod
    def failed(cls, source: Any, error: str) -> Self:
        """The answer to what is no text."""
        return cls([], [], error=error, source=source)

    @classmethod
    def verbatim(cls, text: str, tokens: list[str], source: Any) -> Self:
        """The answer to a text too short to be made shorter: the text itself. A blank one has no lines."""
        attention, copied = np.eye(len(tokens), dtype=np.float32), [True] * len(tokens)
        line = SummaryLine(0.0, tokens, [(text, 0.0)], attention, copied, (0, len(tokens)))
        return cls([line] if tokens else [], tokens, source=source)

    @property
    def text(self) -> str:
        return self.alternatives[0][0] if self.lines else ""

    @property
    def score(self) -> float:
        """What the search ranked it by, the mean over the lines; more is better."""
        return float(np.mean([line.score for line in self.lines])) if self.lines else float("-inf")

    @property
    def tokens(self) -> list[str]:
        """The words and punctuation that were written."""
        return [token for line in self.lines for token in line.tokens]

    @property
    def alternatives(self) -> list[tuple[str, float]]:
        """Text and score of each hypothesis asked for, best first."""
        ranks = zip(*(line.alternatives for line in self.lines), strict=True)
        return [
            (self.separator.join(text for text, _ in rank if text), float(np.mean([score for _, score in rank])))
            for rank in ranks
        ]

    @property
    def copied(self) -> list[bool]:
        """For each token, whether it was copied for want of it in the vocabulary. Where words are deleted, all are."""
        return [copied for line in self.lines for copied in line.copied]

    @property
    def attention(self) -> np.ndarray:
        """`(tokens, source tokens)`, how much each word of the text was looked at for each word written.

        Made anew at each call: large for a long text, whose `lines` have the parts.
        """
        weights = np.zeros((len(self.tokens), len(self.source_tokens)), np.float32)
        row = 0
        for line in self.lines:
            start, end = line.passage
            weights[row : row + len(line.tokens), start:end] = line.attention
            row += len(line.tokens)
        return weights

    @property
    def passages(self) -> list[tuple[int, int]]:
        """From where to where among the `source_tokens` the text was read."""
        return [line.passage for line in self.lines]

    @property
    def was_read_whole(self) -> bool:
        """Whether the passages make up the whole text."""
        return sum(end - start for start, end in self.passages) == len(self.source_tokens)

    def plot(self, path: str | os.PathLike) -> None:
        """Draws which words were read for each word written, as PNG, SVG or PDF by the ending of the path."""
        draw_alignments(self._alignments(), path)

    def to_html(self, path: str | os.PathLike) -> None:
        """Writes a page that shows the words that were read when the pointer is on a word written."""
        write_alignments(self._alignments(), path)

    def _alignments(self):
        return [
            Alignment(line.tokens, self.source_tokens[slice(*line.passage)], line.attention, line.copied)
            for line in self.lines
        ]
