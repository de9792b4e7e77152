"""A translation and which words were read for each word of it."""

import re
from dataclasses import dataclass, field

import numpy as np

from attention_apps.applications.summarization.summary import Summary


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
        """Text and score of each hypothesis that was requested, best first. The sentences of a text are joined."""
        alternatives = []
        for rank in zip(*(line.alternatives for line in self.lines), strict=True):
            whole = "".join(text + separator for (text, _), separator in zip(rank, self.separators, strict=True))
            text = re.sub(" *\n", "\n", re.sub(" +", " ", whole)).strip()
            alternatives.append((text, float(np.mean([score for _, score in rank]))))
        return alternatives
