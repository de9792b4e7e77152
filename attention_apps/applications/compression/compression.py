"""A compressed text and which of its words were kept."""

from dataclasses import dataclass

import numpy as np

from attention_apps.applications.summarization.summary import Summary


@dataclass(frozen=True, eq=False, repr=False)
class Compression(Summary):
    """A `Summary` with one line per sentence, made of words of that sentence.

    The decoder reads one fixed position per step, so the attention of each line is a diagonal.
    """

    @property
    def kept(self) -> list[bool]:
        """Whether each of the `source_tokens` is in the text."""
        kept = [False] * len(self.source_tokens)
        for line in self.lines:
            start, end = line.passage
            is_kept = [True] * (end - start) if line.attention is None else np.any(line.attention, axis=0)
            kept[start:end] = [bool(one) for one in is_kept]
        return kept
