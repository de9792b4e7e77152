"""A translation and which words were read for each word of it."""

import re
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from attention_apps.applications.summarization.summary import Summary, SummaryLine


@dataclass(frozen=True, eq=False, repr=False)
class Translation(Summary):
    """A `Summary` that has a line for each sentence of the text, in the other language.

    `attention` has a column for each word and mark of the text: the weights of the pieces of a word are added up, and
    those of the pieces of a written word are averaged.

    Attributes:
        separators: what stands after each sentence: a space, or line breaks.
    """

    separators: list[str] = field(default_factory=list, repr=False)

    @property
    def alternatives(self) -> list[tuple[str, float]]:
        """Text and score of each hypothesis asked for, best first; that of a long text has one for each sentence."""
        ranks = zip(*(line.alternatives for line in self.lines), strict=True)
        return [
            (self._joined([text for text, _ in rank]), float(np.mean([score for _, score in rank]))) for rank in ranks
        ]

    def _joined(self, texts):
        whole = "".join(text + separator for text, separator in zip(texts, self.separators, strict=True))
        return re.sub(" *\n", "\n", re.sub(" +", " ", whole)).strip()

    @classmethod
    def of(
        cls, lines: list[SummaryLine], line_numbers: list[int], tokens: list[str], threshold: float, item: object
    ) -> Self:
        """The translation of a text from those of its sentences, and the number of the line that each is on."""
        breaks = np.diff(line_numbers, append=line_numbers[-1:])
        separators = ["\n" * int(count) or " " for count in breaks]
        return cls(lines, tokens, threshold=threshold, source=item, separators=separators)
