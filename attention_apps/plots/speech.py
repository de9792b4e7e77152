"""Plot a recording with its words below the waveform, as an image or an HTML page."""

import html
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The longest row, and the size of a row in an image.
_ROW_SECONDS = 8.0
_INCHES_PER_SECOND, _ROW_INCHES = 1.5, 1.8
_FEWEST_INCHES = 5.0
# Limits of an image, so that drawing a long recording takes seconds and not hours. The page shows every word.
_MOST_ROWS = 30
_MOST_WORDS = 100
# The number of columns of a waveform.
_COLUMNS = 400
# Words of a row of an image are on this many lines in turn, so that they do not overlap.
_LINES, _LINE_HEIGHT = 3, 0.55
# Room for a word that begins at the end of a row.
_MARGIN_SECONDS = 0.5
_QUIETEST = 1e-3
_STYLE = """body { font: 17px/1.65 system-ui, sans-serif; max-width: 50em; margin: 1em auto; padding: 0 1em; }
h2 { font-size: 1.25em; line-height: 1.5; margin: .5em 0; }
.row { margin: 0.5em 0; }
.row svg { display: block; width: 100%; height: 3.5em; background: #f6f6f6; fill: #46b; }
.axis { position: relative; height: 1.8em; background: #eee; overflow: hidden; }
.axis span { position: absolute; top: 0; bottom: 0; font-size: 12px; border-left: 2px solid #c60;
  background: rgba(255, 140, 0, var(--sure)); overflow: hidden; white-space: nowrap; }
.row small { color: #555; }
table { border-collapse: collapse; font-size: .9em; } td, th { padding: 0 1.5em 0 0; text-align: left; }"""


@dataclass(frozen=True)
class SpeechAlignment:
    """A piece of a recording and the words in it.

    Args:
        start, end: start and end of the piece in seconds.
        envelope: the lowest and the highest sample of frames of equal length, `(frames, 2)`.
        words: each with `word`, `start`, `end` and `confidence`.
    """

    start: float
    end: float
    envelope: np.ndarray
    words: Sequence[Any]


def draw_speech(pieces: Sequence[SpeechAlignment], path: str | os.PathLike | None = None) -> "Figure":
    """Draw the waveform in rows of at most 8 seconds, with the words below. The path's suffix selects PNG, SVG or PDF.

    Of a long recording the first 30 rows are drawn, and a title says so.

    Returns:
        The figure, which is also saved if `path` is given.
    """
    from matplotlib.figure import Figure

    rows = []
    for piece in pieces:
        rows += _rows(piece)
        if len(rows) > _MOST_ROWS:
            break
    shown = rows[:_MOST_ROWS]
    seconds, loudest = _longest(shown), _loudest(shown)
    width = max(1 + _INCHES_PER_SECOND * seconds, _FEWEST_INCHES)
    figure = Figure(figsize=(width, _ROW_INCHES * max(len(shown), 1)), layout="constrained")
    if len(rows) > len(shown):
        figure.suptitle(f"The first {shown[-1].end:.0f} of {pieces[-1].end:,.0f} s")
    axes = figure.subplots(max(len(shown), 1), squeeze=False)[:, 0]
    for row, axis in zip(shown, axes):
        _draw_row(axis, row, seconds, loudest)
    axes[-1].set_xlabel("seconds")
    if path is not None:
        figure.savefig(path)
    return figure


def write_speech(pieces: Sequence[SpeechAlignment], path: str | os.PathLike | None = None) -> str:
    """Return a self-contained page with the words below the waveform and a table of their times.

    Args:
        path: a file to which the page is also written.
    """
    seconds = max((_longest(list(_rows(piece))) for piece in pieces), default=1.0)
    loudest = _loudest(pieces)
    sections = []
    for piece in pieces:
        text = html.escape(" ".join(word.word for word in piece.words))
        rows = "\n".join(_html_row(row, seconds, loudest) for row in _rows(piece))
        sections.append(f"<section>\n<h2>{text}</h2>\n{rows}\n</section>")
    times = "\n".join(
        f"<tr><td>{html.escape(word.word)}</td><td>{word.start:.2f}</td><td>{word.end:.2f}</td>"
        f"<td>{word.confidence:.2f}</td></tr>"
        for piece in pieces
        for word in piece.words
    )
    joined = "\n".join(sections)
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Transcript</title><style>{_STYLE}</style></head>
<body>
{joined}
<table><tr><th>word</th><th>from</th><th>to (s)</th><th>confidence</th></tr>
{times}
</table>
</body></html>
"""
    if path is not None:
        Path(path).write_text(page, encoding="utf-8", errors="replace")
    return page


def _rows(piece: SpeechAlignment) -> Iterator[SpeechAlignment]:
    """Yield parts of a piece of equal length, at most `_ROW_SECONDS` each. A word is in the row in which it begins."""
    length = max(piece.end - piece.start, 1e-9)
    count = math.ceil(length / _ROW_SECONDS - 1e-6)
    places = [min(max(int((word.start - piece.start) / length * count), 0), count - 1) for word in piece.words]
    for number in range(count):
        start, end = (piece.start + length * edge / count for edge in (number, number + 1))
        first, last = (len(piece.envelope) * edge // count for edge in (number, number + 1))
        words = [word for word, place in zip(piece.words, places, strict=True) if place == number]
        frames = np.asarray(piece.envelope[first:last], np.float32)
        frames = frames if len(frames) else np.zeros((1, 2), np.float32)
        # Neighboring frames are joined, so that at most `_COLUMNS` are left.
        firsts = np.unique(np.linspace(0, len(frames), _COLUMNS, endpoint=False).astype(int))
        lowest, highest = np.minimum.reduceat(frames[:, 0], firsts), np.maximum.reduceat(frames[:, 1], firsts)
        yield SpeechAlignment(start, end, np.stack([lowest, highest], axis=1), words)


def _longest(rows):
    return max((row.end - row.start for row in rows), default=1.0)


def _loudest(pieces):
    """The largest absolute sample, and no less than what is silence."""
    return max((float(np.abs(piece.envelope).max(initial=0)) for piece in pieces), default=0.0) or _QUIETEST


def _draw_row(axis, row, seconds, loudest):
    lowest, highest = row.envelope.T / loudest
    times = np.linspace(row.start, row.end, len(lowest) + 1)
    axis.stairs(highest, times, baseline=lowest, fill=True, color="#4466bb")
    for number, word in enumerate(row.words[:_MOST_WORDS]):
        alpha = 0.1 + 0.3 * word.confidence
        axis.axvspan(word.start, min(word.end, row.end), color="darkorange", alpha=alpha, linewidth=0)
        axis.axvline(word.start, color="#cc6600", linewidth=0.8)
        height = -1.15 - _LINE_HEIGHT * (number % _LINES)
        text = axis.text(word.start, height, f" {word.word}", va="top", fontsize=9, parse_math=False, clip_on=True)
        text.set_in_layout(False)
    axis.set_xlim(row.start, row.start + seconds + _MARGIN_SECONDS)
    axis.set_ylim(-1.15 - _LINE_HEIGHT * _LINES, 1.05)
    axis.set_yticks([])


def _html_row(row, seconds, loudest):
    length = max(row.end - row.start, 1e-9)
    spans = "".join(
        f'<span style="left: {100 * (word.start - row.start) / length:.2f}%; '
        f'width: {100 * (word.end - word.start) / length:.2f}%; --sure: {word.confidence:.2f}" '
        f'title="{word.start:.2f} to {word.end:.2f} s">{html.escape(word.word)}</span>'
        for word in row.words
    )
    lowest, highest = (50 - 50 * row.envelope.T / loudest).round().astype(int).tolist()
    outline = [*enumerate(highest), *reversed(list(enumerate(lowest)))]
    points = " ".join(f"{column},{height}" for column, height in outline)
    view = f'viewBox="0 0 {max(len(lowest) - 1, 1)} 100" preserveAspectRatio="none" role="img"'
    return (
        f'<div class="row" style="width: {100 * length / seconds:.2f}%">\n'
        f'<svg {view} aria-label="waveform"><polygon points="{points}"/></svg>\n'
        f'<div class="axis">{spans}</div>\n<small>{row.start:.1f} to {row.end:.1f} s</small>\n</div>'
    )
