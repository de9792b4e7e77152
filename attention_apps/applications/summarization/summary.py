"""A summary and which words were read for each word of it."""

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from attention_apps.applications.outputs import Result, answer_fields
from attention_apps.plots.alignment import Alignment, draw_alignments, write_alignments

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The most tokens of a verbatim summary with an attention matrix, and the most numbers in the matrix of a whole summary.
# Both would grow with the square of the text.
_MAX_IDENTITY = 256
_MAX_ATTENTION = 1 << 24


@dataclass(frozen=True, eq=False)
class SummaryLine:
    """The summary of one passage; for the attributes see `Summary`.

    `attention` is `(tokens, end - start)`, or `None` if each token was copied from the same position of a long text.
    `passage` is the range of source tokens that the model read.
    """

    score: float
    tokens: list[str]
    alternatives: list[tuple[str, float]]
    attention: np.ndarray | None = field(repr=False)
    copied: list[bool]
    passage: tuple[int, int]
    confidence: float = 1.0

    @classmethod
    def from_outputs(cls, outputs: dict[str, np.ndarray], passage: tuple[int, int], copied: bool | None = None) -> Self:
        """Make the line of a passage from the outputs of the pipeline.

        Args:
            copied: whether all tokens were copied. By default, the outputs say it for each token.
        """
        answer = answer_fields(outputs)
        if copied is None:
            of_tokens = outputs["copied"][outputs["tokens"] != b""].tolist()
        else:
            of_tokens = [copied] * len(answer["tokens"])
        attention = answer.pop("attention")[:, : passage[1] - passage[0]]
        return cls(attention=attention, copied=of_tokens, passage=passage, **answer)


@dataclass(frozen=True, eq=False, repr=False)
class Summary(Result):
    """A summary with its score, confidence, alternatives and attention.

    Attributes:
        lines: the summaries of the passages that were read, in the order of the text.
        source_tokens: the words and punctuation of the whole text.
        separator: the separator between lines in `text`.
        threshold: the confidence below which the summary is `unsure`.
        error: why there is no summary, or `None`.
        source: the item that was summarized.
    """

    lines: list[SummaryLine] = field(default_factory=list)
    source_tokens: list[str] = field(default_factory=list)
    separator: str = "\n"
    threshold: float = 0.0
    error: str | None = None
    source: Any = None

    @classmethod
    def verbatim(cls, text: str, tokens: list[str], source: Any) -> Self:
        """Return the text itself, if it is too short to summarize. A blank text has no lines.

        A text of few words can still have very many tokens, such as 200,000 apostrophes.
        """
        attention = np.eye(len(tokens), dtype=np.float32) if len(tokens) <= _MAX_IDENTITY else None
        line = SummaryLine(0.0, tokens, [(text, 0.0)], attention, [True] * len(tokens), (0, len(tokens)))
        return cls([line] if tokens else [], tokens, source=source)

    @property
    def score(self) -> float:
        """The mean score of the lines in the search; higher is better."""
        return float(np.mean([line.score for line in self.lines])) if self.lines else float("-inf")

    @property
    def confidence(self) -> float:
        """The lowest confidence of a line, from 0 to 1."""
        return min((line.confidence for line in self.lines), default=0.0)

    @property
    def unsure(self) -> bool:
        """Whether the confidence is below the threshold of the preset."""
        return bool(self.lines) and self.confidence < self.threshold

    @property
    def tokens(self) -> list[str]:
        """The words and punctuation of the summary."""
        return [token for line in self.lines for token in line.tokens]

    @property
    def alternatives(self) -> list[tuple[str, float]]:
        """Text and score of each hypothesis that was requested, best first."""
        ranks = zip(*(line.alternatives for line in self.lines), strict=True)
        return [
            (self.separator.join(text for text, _ in rank if text), float(np.mean([score for _, score in rank])))
            for rank in ranks
        ]

    @property
    def copied(self) -> list[bool]:
        """Whether each token was copied because it is out of vocabulary."""
        return [copied for line in self.lines for copied in line.copied]

    @property
    def attention(self) -> np.ndarray | None:
        """The attention of each summary token to each source token, `(tokens, source tokens)`.

        Computed at each call. `None` if it has more than 16 million numbers: use the attention of each line.
        """
        rows = sum(len(line.tokens) for line in self.lines)
        if rows * len(self.source_tokens) > _MAX_ATTENTION:
            return None
        weights = np.zeros((rows, len(self.source_tokens)), np.float32)
        row = 0
        for line in self.lines:
            start, end = line.passage
            identity = np.eye(len(line.tokens), end - start) if line.attention is None else line.attention
            weights[row : row + len(line.tokens), start:end] = identity
            row += len(line.tokens)
        return weights

    @property
    def passages(self) -> list[tuple[int, int]]:
        """The start and the end of each passage among the `source_tokens`."""
        return [line.passage for line in self.lines]

    @property
    def was_read_whole(self) -> bool:
        """Whether the passages are the whole text."""
        return sum(end - start for start, end in self.passages) == len(self.source_tokens)

    def plot(self, path: str | os.PathLike | None = None) -> "Figure":
        """Draw which words were read for each word written. The path's suffix selects PNG, SVG or PDF."""
        return draw_alignments(self._alignments(), path)

    def to_html(self, path: str | os.PathLike | None = None) -> str:
        """Write a self-contained page that shows which words were read for the written word under the pointer."""
        return write_alignments(self._alignments(), path)

    def _alignments(self):
        return [
            Alignment(line.tokens, self.source_tokens[slice(*line.passage)], line.attention, line.copied)
            for line in self.lines
        ]
