"""Plot the attention between the words of a text and of its summary or translation, as an image or an HTML page."""

import html
import itertools
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES_PER_WORD = 0.28
_MOST_INCHES = 60.0
# Limits of an image, so that drawing takes seconds and not hours. The page shows everything.
_MOST_PASSAGES = 5
_MOST_WRITTEN = 100
_MOST_SOURCE = 150
_MOST_LETTERS = 40
_STYLE = """body { font: 17px/1.65 system-ui, sans-serif; max-width: 46em; margin: 1em auto; padding: 0 1em; }
.written { font-size: 1.25em; line-height: 1.5; margin: .5em 0; }
.written span { cursor: default; border-bottom: 2px solid #bbb; border-radius: 3px 3px 0 0; }
.written span.copied { border-color: #c60; }
.written span.shown { background: #fd6; }
.source { color: #333; margin: .5em 0; }
.source span { border-radius: 3px; }
.hint { color: #777; font-size: 14px; margin: 0; }"""
_HINT = "Point at a word to see what was read for it. Words with an orange line were copied."
_COPIED = "#c60"
# Words are separated by spaces, except before the first kind of mark and after the second.
_CLOSING = re.compile(r"[,.;:!?%)\]}»”\u2019…]+|['\u2019]s")
_OPENING = re.compile(r"[(\[{«“$£€#@]")
# The color is strongest at the source word with the most attention.
_SCRIPT = """for (const passage of document.querySelectorAll("section")) {
  const weights = JSON.parse(passage.querySelector("script").textContent);
  const source = passage.querySelectorAll(".source span");
  const written = passage.querySelectorAll(".written span");
  written.forEach((word, row) => {
    const weight = column => weights === null ? Number(row === column) : weights[row][column];
    const most = weights === null ? 1 : Math.max(...weights[row], 1e-6);
    const show = () => {
      written.forEach(other => other.classList.toggle("shown", other === word));
      source.forEach((token, column) => {
        token.style.background = `rgba(255, 140, 0, ${0.8 * weight(column) / most})`;
      });
    };
    word.tabIndex = 0;
    word.addEventListener("mouseenter", show);
    word.addEventListener("focus", show);
    if (row === 0) show();
  });
}"""


@dataclass(frozen=True)
class Alignment:
    """The words written for a passage, the words of the passage, and the attention between them.

    Args:
        weights: `(written, source)`, or `None` if each word was copied from the same position.
    """

    written: Sequence[str]
    source: Sequence[str]
    weights: np.ndarray | None
    copied: Sequence[bool]


def draw_alignments(alignments: Sequence[Alignment], path: str | os.PathLike | None = None) -> "Figure":
    """Draw a grid for each passage: written words at the side, source words below, darker for more attention.

    Copied words are orange. The image shows the first 5 passages, and at most 100 written and 150 source words of
    each. A title says if something was cut.

    Returns:
        The figure, which is also saved if `path` is given.
    """
    from matplotlib.figure import Figure

    shown = []
    for one in alignments[:_MOST_PASSAGES]:
        written, source = one.written[:_MOST_WRITTEN], one.source[:_MOST_SOURCE]
        weights = np.eye(len(written), len(source)) if one.weights is None else one.weights
        shown.append(Alignment(written, source, weights[: len(written), : len(source)], one.copied[:_MOST_WRITTEN]))
    shapes = [(max(len(one.written), 1), max(len(one.source), 1)) for one in shown] or [(1, 1)]
    width = min(3 + _INCHES_PER_WORD * max(columns for _, columns in shapes), _MOST_INCHES)
    height = min(sum(2.5 + _INCHES_PER_WORD * rows for rows, _ in shapes), _MOST_INCHES)
    figure = Figure(figsize=(width, height), layout="constrained")
    if len(alignments) > len(shown):
        figure.suptitle(f"The first {len(shown)} of {len(alignments):,} passages")
    axes = figure.subplots(len(shapes), squeeze=False, height_ratios=[rows + 4 for rows, _ in shapes])[:, 0]
    for axis, one, whole in zip(axes, shown, alignments):
        axis.imshow(one.weights, cmap="Greys", vmin=0, vmax=1, aspect="auto")
        axis.set_xticks(range(len(one.source)), _drawable(one.source), rotation=90)
        axis.set_yticks(range(len(one.written)), _drawable(one.written))
        for label, copied in zip(axis.get_yticklabels(), one.copied):
            label.set_color(_COPIED if copied else "black")
        axis.hlines([row + 0.5 for row in range(len(one.written) - 1)], -0.5, len(one.source) - 0.5, "#ddd", lw=0.5)
        axis.tick_params(length=0)
        if len(one.written) < len(whole.written) or len(one.source) < len(whole.source):
            axis.set_title(f"The first words of {len(whole.written):,} written and {len(whole.source):,} read")
    if path is not None:
        figure.savefig(path)
    return figure


def write_alignments(alignments: Sequence[Alignment], path: str | os.PathLike | None = None) -> str:
    """Return a self-contained page that shows the attention for the written word under the pointer.

    Args:
        path: a file to which the page is also written.
    """
    sections = "\n".join(map(_section, alignments))
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>What was read</title><style>{_STYLE}</style></head>
<body>
<p class="hint">{_HINT}</p>
{sections}
<script>{_SCRIPT}</script>
</body></html>
"""
    if path is not None:
        Path(path).write_text(page, encoding="utf-8", errors="replace")
    return page


def _section(one):
    classes = ["copied" if copied else "" for copied in one.copied]
    written = _spaced(
        one.written, [f'<span class="{kind}">{html.escape(word)}</span>' for kind, word in zip(classes, one.written)]
    )
    source = _spaced(one.source, [f"<span>{html.escape(word)}</span>" for word in one.source])
    weights = json.dumps(None if one.weights is None else np.round(one.weights, 3).astype(float).tolist())
    data = f'<script type="application/json">{weights}</script>'
    return (
        f'<section>\n<h2 class="written">{written}</h2>\n<p class="source" dir="auto">{source}</p>\n{data}\n</section>'
    )


def _spaced(words, elements):
    """Join the elements of words, with spaces except around punctuation."""
    parts = list(elements[:1])
    for (before, word), element in zip(itertools.pairwise(words), elements[1:]):
        parts += ["" if _CLOSING.fullmatch(word) or _OPENING.fullmatch(before) else " ", element]
    return "".join(parts)


def _drawable(words):
    """Escape dollar signs, with which Matplotlib starts a formula, and truncate very long words."""
    return [word[:_MOST_LETTERS].replace("$", r"\$") for word in words]
