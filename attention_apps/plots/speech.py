"""Plot the attention over a recording for each letter, as an image or an HTML page."""

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES_PER_SECOND = 2.0
_INCHES_PER_LETTER = 0.16
_FEWEST_INCHES, _MOST_INCHES = 5.0, 60.0
# Limits of an image, so that drawing a long recording takes seconds and not hours. The page shows every word.
_MOST_PIECES = 12
_MOST_LETTERS = 500
_MOST_WORDS = 100
_MOST_FRAMES = 6000
_STYLE = """body { font: 17px/1.65 system-ui, sans-serif; max-width: 50em; margin: 1em auto; padding: 0 1em; }
h2 { font-size: 1.25em; line-height: 1.5; margin: .5em 0; }
.axis { position: relative; height: 2.4em; background: #eee; margin: 0.5em 0; overflow: hidden; }
.axis span { position: absolute; top: 0; bottom: 0; font-size: 12px; border-left: 2px solid #c60;
  background: rgba(255, 140, 0, var(--sure)); overflow: hidden; white-space: nowrap; }
table { border-collapse: collapse; font-size: .9em; } td, th { padding: 0 1.5em 0 0; text-align: left; }"""


@dataclass(frozen=True)
class SpeechAlignment:
    """A piece of a recording, its transcript and the attention between them.

    Args:
        start, end: start and end of the piece in seconds.
        features: `(time, mels)`.
        weights: the attention of each letter to each position, `(letters, positions)`.
        words: each with `word`, `start`, `end` and `confidence`.
        frame_seconds: the duration of one position.
    """

    start: float
    end: float
    features: np.ndarray
    letters: Sequence[str]
    weights: np.ndarray
    words: Sequence[Any]
    frame_seconds: float = 0.04


def draw_speech(pieces: Sequence[SpeechAlignment], path: str | os.PathLike | None = None) -> "Figure":
    """Draw the spectrogram of each piece and the attention below it. The path's suffix selects PNG, SVG or PDF.

    Of a long recording the first 12 pieces are drawn, and a title says so.

    Returns:
        The figure, which is also saved if `path` is given.
    """
    from matplotlib.figure import Figure

    total = len(pieces)
    pieces = [_cropped(piece) for piece in pieces[:_MOST_PIECES]]
    seconds = max((piece.end - piece.start for piece in pieces), default=1.0)
    letters = [max(len(piece.letters), 8) for piece in pieces] or [8]
    width = float(np.clip(2 + _INCHES_PER_SECOND * seconds, _FEWEST_INCHES, _MOST_INCHES))
    height = min(sum(3 + _INCHES_PER_LETTER * count for count in letters), _MOST_INCHES)
    figure = Figure(figsize=(width, height), layout="constrained")
    if total > len(pieces):
        figure.suptitle(f"The first {len(pieces)} of {total:,} pieces, up to {pieces[-1].end:.0f} s")
    ratios = [ratio for count in letters for ratio in (12, count)]
    axes = figure.subplots(2 * len(letters), squeeze=False, height_ratios=ratios)[:, 0]
    for piece, above, below in zip(pieces, axes[::2], axes[1::2]):
        _draw_spectrogram(above, piece)
        _draw_attention(below, piece)
    if path is not None:
        figure.savefig(path)
    return figure


def _cropped(piece: SpeechAlignment) -> SpeechAlignment:
    """Limit the size of a piece. If it has too many frames, keep every n-th."""
    step, feature_step = (max(1, -(-count // _MOST_FRAMES)) for count in (piece.weights.shape[1], len(piece.features)))
    return replace(
        piece,
        features=piece.features[::feature_step],
        letters=piece.letters[:_MOST_LETTERS],
        weights=piece.weights[:_MOST_LETTERS, ::step],
        words=piece.words[:_MOST_WORDS],
        frame_seconds=piece.frame_seconds * step,
    )


def write_speech(pieces: Sequence[SpeechAlignment], path: str | os.PathLike | None = None) -> str:
    """Return a self-contained page with the words on a time axis and a table of their times.

    Args:
        path: a file to which the page is also written.
    """
    sections = "\n".join(map(_section, pieces))
    rows = "\n".join(
        f"<tr><td>{html.escape(word.word)}</td><td>{word.start:.2f}</td><td>{word.end:.2f}</td>"
        f"<td>{word.confidence:.2f}</td></tr>"
        for piece in pieces
        for word in piece.words
    )
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Transcript</title><style>{_STYLE}</style></head>
<body>
{sections}
<table><tr><th>word</th><th>from</th><th>to (s)</th><th>confidence</th></tr>
{rows}
</table>
</body></html>
"""
    if path is not None:
        Path(path).write_text(page, encoding="utf-8", errors="replace")
    return page


def _draw_spectrogram(axis, piece):
    mels = piece.features.shape[1]
    image = np.asarray(piece.features, np.float32).T
    axis.imshow(image, origin="lower", aspect="auto", cmap="magma", extent=(piece.start, piece.end, 0, mels))
    axis.set_ylabel("mel")
    for word in piece.words:
        axis.axvline(word.start, color="white", linewidth=0.6)
        axis.axvline(word.end, color="white", linewidth=0.6, linestyle=":")
    middles = [(word.start + word.end) / 2 for word in piece.words]
    axis.set_xticks(middles, [word.word.replace("$", r"\$") for word in piece.words])
    axis.tick_params(axis="x", top=True, labeltop=True, bottom=False, labelbottom=False)
    axis.set_xlim(piece.start, piece.end)


def _draw_attention(axis, piece):
    rows = max(len(piece.letters), 1)
    weights = piece.weights if piece.weights.size else np.zeros((1, 1), np.float32)
    end = piece.start + weights.shape[1] * piece.frame_seconds
    extent = (piece.start, end, rows - 0.5, -0.5)
    axis.imshow(weights, cmap="Greys", vmin=0, vmax=1, aspect="auto", extent=extent)
    axis.set_yticks(range(len(piece.letters)), [letter.replace("$", r"\$") for letter in piece.letters], fontsize=7)
    axis.set_xlim(piece.start, piece.end)
    axis.set_xlabel("seconds")


def _section(piece):
    length = max(piece.end - piece.start, 1e-9)
    spans = "".join(
        f'<span style="left: {100 * (word.start - piece.start) / length:.2f}%; '
        f'width: {100 * (word.end - word.start) / length:.2f}%; --sure: {word.confidence:.2f}" '
        f'title="{word.start:.2f} to {word.end:.2f} s">{html.escape(word.word)}</span>'
        for word in piece.words
    )
    text = html.escape(" ".join(word.word for word in piece.words))
    return f'<section>\n<h2>{text}</h2>\n<div class="axis">{spans}</div>\n</section>'
