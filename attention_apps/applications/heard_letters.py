"""What is known of the letters that a recognizer wrote."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from attention_apps.applications.word_times import geometric_mean, letter_spans
from attention_apps.decoding.ctc_alignment import align_ctc


@dataclass(frozen=True, eq=False)
class HeardLetters:
    """Letters, where they were heard, and how sure that is.

    Attributes:
        attention: `(letters, positions)`.
        spans: the first position of each letter and the one after its last, `(letters, 2)`.
        confidences: the geometric mean of the probabilities that attention and CTC give each letter, `(letters,)`.
        confidence: the geometric mean over the letters; 0 where there are none.
    """

    letters: list[str]
    attention: np.ndarray
    spans: np.ndarray
    confidences: np.ndarray
    confidence: float

    @classmethod
    def of(
        cls,
        letters: list[str],
        token_ids: np.ndarray,
        attention: np.ndarray,
        log_probs: np.ndarray,
        ctc_log_probs: np.ndarray,
    ) -> Self:
        """Finds out where letters were heard.

        Args:
            token_ids: of the letters, `(letters,)`.
            log_probs: of the letters by attention, `(letters,)`.
            ctc_log_probs: of all letters at each position, `(positions, vocabulary)`.
        """
        spans = letter_spans(align_ctc(ctc_log_probs, token_ids), attention)
        best = [ctc_log_probs[first:end, token].max() for (first, end), token in zip(spans, token_ids, strict=True)]
        confidences = np.exp((log_probs + np.array(best, np.float32)) / 2)
        return cls(letters, attention, spans, confidences, geometric_mean(confidences))

    def forgotten(self) -> Self:
        """The same without any letter."""
        return type(self)([], self.attention[:0], self.spans[:0], self.confidences[:0], self.confidence)
