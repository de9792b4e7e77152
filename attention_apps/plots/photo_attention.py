"""Plot where a captioner looked for each word, as an image or an HTML page."""

import base64
import html
import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import PIL.Image

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANELS_PER_ROW = 5
_PANEL_INCHES = 2.4
# The brightness of regions without attention.
_DIMMEST = 0.3
_MASK_PIXELS_PER_REGION = 8
_PHOTO_QUALITY = 88
# The height of a photo on the page, so that portraits fit the window.
_MAX_PHOTO_PIXELS = 320
# The page has no script. Each word contains its own dimmed photo, which is visible while the word is under the pointer
# or has the focus.
_STYLE = """.photo-attention { position: relative; display: flex; gap: 1em; align-items: flex-start; max-width: 56em;
  margin: 0 auto; font: 17px/1.5 system-ui, sans-serif; --share: 62%; }
.photo-attention img { display: block; flex: none; width: min(var(--share), var(--widest)); border-radius: 6px; }
.photo-attention .beside { flex: 1; min-width: 0; }
.photo-attention .words { font-size: 1.25em; margin: 0 0 .4em; }
@media (max-width: 34em) { .photo-attention { flex-direction: column; --share: 100%; } }
.photo-attention .word { padding: .05em .15em; border-radius: 4px; border-bottom: 2px solid #d98a00; cursor: default; }
.photo-attention .word img { position: absolute; top: 0; left: 0; opacity: 0; pointer-events: none;
  transition: opacity .15s; }
.photo-attention .word:hover, .photo-attention .word:focus { background: #ffd54a; color: #000; outline: none; }
.photo-attention .word:focus { outline: 2px solid #a35f00; }
.photo-attention .word:hover img, .photo-attention .words:not(:hover) .word:focus img { opacity: 1; }
.photo-attention .hint, .photo-attention li { opacity: .8; font-size: .85em; }
.photo-attention .score { font-variant-numeric: tabular-nums; opacity: .75; }"""
_PAGE_STYLE = ":root { color-scheme: light dark; } body { margin: 1em; }"


@dataclass(frozen=True)
class PhotoAttention:
    """A photo `(height, width, 3)`, the words of its caption, and the attention of each word.

    `weights` is `(words, rows, columns)`. The grid covers the whole photo.
    """

    pixels: np.ndarray
    words: Sequence[str]
    weights: np.ndarray


def draw_photo_attention(shown: PhotoAttention, path: str | os.PathLike | None = None) -> "Figure":
    """Draw the photo, and one copy per word that is bright where the model looked and dim elsewhere.

    Returns:
        The figure, which is also saved if `path` is given.
    """
    from matplotlib.figure import Figure

    height, width = shown.pixels.shape[:2]
    columns = min(len(shown.words) + 1, _PANELS_PER_ROW)
    rows = math.ceil((len(shown.words) + 1) / columns)
    panel_height = _PANEL_INCHES * min(max(height / width, 0.2), 3.0) + 0.35  # the word is above the photo
    figure = Figure(figsize=(columns * _PANEL_INCHES, rows * panel_height), dpi=150, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    panels = [shown.pixels]
    for weights in shown.weights:
        light = _DIMMEST + (1 - _DIMMEST) * _smooth(weights, width, height)
        panels.append((shown.pixels * light[..., np.newaxis]).astype(np.uint8))
    for axis in axes:
        axis.axis("off")
    for axis, panel, word in zip(axes, panels, ["", *shown.words]):
        axis.imshow(panel)
        # A dollar sign starts a formula in Matplotlib.
        axis.set_title(word.replace("$", r"\$"), fontsize=13, pad=4)
    if path is not None:
        figure.savefig(path)
    return figure


def write_photo_attention(
    shown: PhotoAttention, alternatives: Sequence[tuple[str, float]], path: str | os.PathLike | None = None
) -> str:
    """Return a self-contained page that highlights where the model looked for the word under the pointer.

    Args:
        alternatives: text and score of each hypothesis, best first. The first one is the caption that is shown.
        path: a file to which the page is also written.
    """
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(alternatives[0][0])}</title><style>{_PAGE_STYLE}</style></head>
<body>
{photo_attention_html(shown, alternatives)}
</body></html>
"""
    if path is not None:
        Path(path).write_text(page, encoding="utf-8", errors="replace")
    return page


def photo_attention_html(shown: PhotoAttention, alternatives: Sequence[tuple[str, float]]) -> str:
    """Return the page's content as one HTML element, for a notebook."""
    photo = _data_url(PIL.Image.fromarray(shown.pixels), "JPEG", quality=_PHOTO_QUALITY)
    height, width = shown.pixels.shape[:2]
    words = []
    for word, weights in zip(shown.words, shown.weights, strict=True):
        # A black image that is transparent where the model looked.
        rows, columns = weights.shape
        light = _smooth(weights, columns * _MASK_PIXELS_PER_REGION, rows * _MASK_PIXELS_PER_REGION)
        alpha = np.rint((1 - light) * (1 - _DIMMEST) * 255).astype(np.uint8)
        mask = PIL.Image.fromarray(np.stack([np.zeros_like(alpha), alpha], -1), "LA")
        mask_url = _data_url(mask, "PNG", optimize=True)
        words.append(
            f'<span class="word" tabindex="0">{html.escape(word)}'
            f'<img src="{mask_url}" alt="" style="aspect-ratio: {width} / {height}"></span>'
        )
    others = "\n".join(
        f'<li><span class="score">{score:.3f}</span> {html.escape(text)}</li>' for text, score in alternatives
    )
    ranked = f"<ol>\n{others}\n</ol>" if len(alternatives) > 1 else ""
    widest = f"{_MAX_PHOTO_PIXELS * width / height:.0f}px"
    return f"""<div class="photo-attention" style="--widest: {widest}"><style>{_STYLE}</style>
<img src="{photo}" alt="{html.escape(alternatives[0][0])}" style="aspect-ratio: {width} / {height}">
<div class="beside"><p class="words">{" ".join(words)}</p>
<p class="hint">Point at a word, or go through the words with the tab key, to see where the model looked for it.</p>
{ranked}</div></div>"""


def _smooth(weights: np.ndarray, width: int, height: int) -> np.ndarray:
    """Interpolate region weights to pixels. The largest becomes 1."""
    grid = PIL.Image.fromarray(np.asarray(weights, np.float32))
    light = np.clip(np.asarray(grid.resize((width, height), PIL.Image.Resampling.BICUBIC)), 0, None)
    return light / max(float(light.max()), np.finfo(np.float32).tiny)


def _data_url(image: PIL.Image.Image, image_format: str, **options) -> str:
    buffer = io.BytesIO()
    image.save(buffer, image_format, **options)
    return f"data:image/{image_format.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
