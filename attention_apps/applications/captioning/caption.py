"""A caption and where the model looked for each word."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attention_apps.applications.outputs import Result
from attention_apps.plots.photo_attention import (
    PhotoAttention,
    draw_photo_attention,
    photo_attention_html,
    write_photo_attention,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Caption(Result):
    """A caption with its score, confidence, alternatives and attention.

    Attributes:
        text: the caption.
        score: the score of the search; higher is better.
        tokens: its words.
        alternatives: text and score of each hypothesis that was requested, best first.
        attention: `(words, rows, columns)`, the attention of each word to each region of the photo.
        confidence: the confidence of the model, from 0 to 1.
        unsure: whether the confidence is below the threshold of the preset.
        error: why the photo could not be captioned, or `None`.
        source: the item that was captioned.
        pixels: `(height, width, 3)`, the part of the photo that the model saw, reduced in size if large.
    """

    text: str
    score: float
    tokens: list[str]
    alternatives: list[tuple[str, float]]
    attention: np.ndarray | None
    confidence: float = 0.0
    unsure: bool = False
    error: str | None = None
    source: Any = None
    pixels: np.ndarray | None = None

    @classmethod
    def failed(cls, source: Any, error: str) -> "Caption":
        """Return the result of an image that could not be captioned."""
        return cls("", float("-inf"), [], [], None, error=error, source=source)

    def plot(self, path: str | os.PathLike | None = None) -> "Figure":
        """Draw where the model looked for each word. The path's suffix selects PNG, SVG or PDF."""
        return draw_photo_attention(self._shown(), path)

    def to_html(self, path: str | os.PathLike | None = None) -> str:
        """Write a self-contained page that highlights where the model looked for the word under the pointer."""
        return write_photo_attention(self._shown(), self.alternatives, path)

    def _repr_html_(self) -> str | None:
        """Return the HTML that a notebook shows: the photo and its words, with their own styles."""
        return None if self.pixels is None else photo_attention_html(self._shown(), self.alternatives)

    def _shown(self):
        if self.pixels is None:
            raise ValueError(f"This caption has no photo to show. {self.error or ''}".strip())
        return PhotoAttention(self.pixels, self.tokens, self.attention)
