"""What a captioner says of a photo."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Caption:
    """A caption and how it came about.

    Attributes:
        text: the caption.
        score: what the search ranked it by; more is better.
        tokens: its words.
        alternatives: text and score of each hypothesis asked for, best first.
        attention: `(words, rows, columns)`, how much each region of the photo was looked at for each word.
        error: why the photo could not be captioned, or `None`.
    """

    text: str
    score: float
    tokens: list[str]
    alternatives: list[tuple[str, float]]
    attention: np.ndarray | None
    error: str | None = None
    source: Any = field(default=None, repr=False)
    pixels: np.ndarray | None = field(default=None, repr=False)

    @classmethod
    def failed(cls, source: Any, error: str) -> "Caption":
        """The answer to an image that could not be read."""
        return cls("", float("-inf"), [], [], None, error=error, source=source)

    def of(self, source: Any, pixels: np.ndarray) -> "Caption":
        """The caption together with what it was written for."""
        return replace(self, source=source, pixels=pixels)
