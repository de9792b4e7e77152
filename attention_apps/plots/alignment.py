"""Which words were read for each word written, as a picture and as a page."""

import html
import itertools
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_INCHES_PER_WORD = 0.28
_MOST_INCHES = 60.0
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
# Between words, a space; none before the first kind of mark, and none after the second.
_CLOSING = re.compile(r"[,.;:!?%)\]}»”\u2019…]+|['\u2019]s")
_OPENING = re.compile(r"[(\[{«“$£€#@]")
# As over a photo, the colour is fullest where the model looked most.
_SCRIPT = """for (const passage of document.querySelectorAll("section")) {
  const weights = JSON.parse(passage.querySelector("script").textContent);
  const source = passage.querySelectorAll(".source span");
  const written = passage.querySelectorAll(".written span");
  written.forEach((word, row) => {
    const most = Math.max(...weights[row], 1e-6);
    const show = () => {
      written.forEach(other => other.classList.toggle("shown", other === word));
      source.forEach((token, column) => {
        token.style.background = `rgba(255, 140, 0, ${0.8 * weights[row][column] / most})`;
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
    """Words written for a passage, the passage's words, and the weights between them, `(written, source)`."""

    written: Sequence[str]
    source: Sequence[str]
    weights: np.ndarray
    copied: Sequence[bool]


def draw_alignments(alignments: Sequence[Alignment], path: str | os.PathLike) -> None:
    """Draws one square for each pair of words, the darker the more the one was read for the other.

    The words written stand at the side, in orange where they were copied, and those that were read below.
    """
    from matplotlib.figure import Figure

    shapes = [(max(len(one.written), 1), max(len(one.source), 1)) for one in alignments] or [(1, 1)]
    width = min(3 + _INCHES_PER_WORD * max(columns for _, columns in shapes), _MOST_INCHES)
    height = min(sum(2.5 + _INCHES_PER_WORD * rows for rows, _ in shapes), _MOST_INCHES)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(len(shapes), squeeze=False, height_ratios=[rows + 4 for rows, _ in shapes])[:, 0]
    for axis, one in zip(axes, alignments):
        axis.imshow(one.weights, cmap="Greys", vmin=0, vmax=1, aspect="auto")
        axis.set_xticks(range(len(one.source)), _drawable(one.source), rotation=90)
        axis.set_yticks(range(len(one.written)), _drawable(one.written))
        for label, copied in zip(axis.get_yticklabels(), one.copied):
            label.set_color(_COPIED if copied else "black")
        axis.hlines([row + 0.5 for row in range(len(one.written) - 1)], -0.5, len(one.source) - 0.5, "#ddd", lw=0.5)
        axis.tick_params(length=0)
    figure.savefig(path)


def write_alignments(alignments: Sequence[Alignment], path: str | os.PathLike) -> None:
    """Writes a page that shows what was read when the pointer is on a word written; it needs nothing else."""
    sections = "\n".join(map(_section, alignments))
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Summary</title><style>{_STYLE}</style></head>
<body>
<p class="hint">{_HINT}</p>
{sections}
<script>{_SCRIPT}</script>
</body></html>
"""
    Path(path).write_text(page, encoding="utf-8", errors="replace")


def _section(one):
    classes = ["copied" if copied else "" for copied in one.copied]
    written = _spaced(
        one.written, [f'<span class="{kind}">{html.escape(word)}</span>' for kind, word in zip(classes, one.written)]
    )
    source = _spaced(one.source, [f"<span>{html.escape(word)}</span>" for word in one.source])
    weights = json.dumps(np.round(one.weights, 3).astype(float).tolist())
    data = f'<script type="application/json">{weights}</script>'
    return (
        f'<section>\n<h2 class="written">{written}</h2>\n<p class="source" dir="auto">{source}</p>\n{data}\n</section>'
    )


def _spaced(words, elements):
    """The elements of words one after the other, with spaces where people put them."""
    joined = "".join(elements[:1])
    for (before, word), element in zip(itertools.pairwise(words), elements[1:]):
        joined += ("" if _CLOSING.fullmatch(word) or _OPENING.fullmatch(before) else " ") + element
    return joined


def _drawable(words):
    """Words as plain text for Matplotlib, in which a dollar sign begins a formula."""
    return [word.replace("$", r"\$") for word in words]
