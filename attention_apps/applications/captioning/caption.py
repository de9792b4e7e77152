"""A caption and where the model looked for each word, compared with the boxes of the objects that words name."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from attention_apps.applications.outputs import Result
from attention_apps.data import Manifest
from attention_apps.metrics import MetricResult
from attention_apps.plots.photo_attention import (
    PhotoAttention,
    draw_photo_attention,
    photo_attention_html,
    write_photo_attention,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOX_COLUMNS = ("left", "top", "right", "bottom")

# What captions call objects of COCO's classes, besides the name of the class. Plurals are found by their endings.
_SYNONYMS = {
    "person": "man woman boy girl child kid baby lady guy people men women children player skier surfer rider "
    "skateboarder snowboarder batter pitcher catcher crowd couple someone he she",
    "bicycle": "bike",
    "motorcycle": "motorbike bike scooter moped",
    "airplane": "plane jet aircraft airliner jetliner",
    "car": "suv sedan taxi cab vehicle",
    "truck": "pickup firetruck vehicle",
    "train": "locomotive subway trolley",
    "boat": "ship sailboat canoe kayak ferry",
    "traffic light": "light stoplight signal",
    "fire hydrant": "hydrant",
    "stop sign": "sign",
    "parking meter": "meter",
    "bird": "duck goose geese seagull parrot owl pigeon swan",
    "cat": "kitten kitty",
    "dog": "puppy",
    "horse": "pony foal",
    "sheep": "lamb",
    "cow": "cattle bull calf ox",
    "handbag": "purse bag",
    "backpack": "bag",
    "suitcase": "luggage bag",
    "sports ball": "ball",
    "baseball bat": "bat",
    "baseball glove": "glove mitt",
    "skis": "ski",
    "tennis racket": "racket racquet",
    "wine glass": "glass wine",
    "cup": "mug coffee",
    "couch": "sofa",
    "potted plant": "plant",
    "dining table": "table",
    "tv": "television monitor screen",
    "cell phone": "phone cellphone",
    "remote": "controller wii",
    "oven": "stove",
    "microwave": "oven",
    "donut": "doughnut",
    "hot dog": "hotdog",
}


@dataclass(frozen=True, eq=False, repr=False)
class Caption(Result):
    """A caption with its score, confidence, alternatives and attention.

    Attributes:
        text: the caption.
        score: the score of the search; higher is better.
        tokens: its words.
        alternatives: text and score of each hypothesis that was requested, best first.
        attention: `(words, rows, columns)`, the attention of each word to each region of the photo.
        confidence: the confidence of the model, from 0 to 1.
        unsure: whether the confidence is below the threshold of the preset.
        error: why the photo could not be captioned, or `None`.
        source: the item that was captioned.
        pixels: `(height, width, 3)`, the part of the photo that the model saw, reduced in size if large.
    """

    text: str = ""
    score: float = float("-inf")
    tokens: list[str] = field(default_factory=list)
    alternatives: list[tuple[str, float]] = field(default_factory=list)
    attention: np.ndarray | None = None
    confidence: float = 0.0
    unsure: bool = False
    error: str | None = None
    source: Any = None
    pixels: np.ndarray | None = None

    def plot(self, path: str | os.PathLike | None = None) -> "Figure":
        """Draw where the model looked for each word. The path's suffix selects PNG, SVG or PDF."""
        return draw_photo_attention(self._shown(), path)

    def to_html(self, path: str | os.PathLike | None = None) -> str:
        """Write a self-contained page that highlights where the model looked for the word under the pointer."""
        return write_photo_attention(self._shown(), self.alternatives, path)

    def _repr_html_(self) -> str | None:
        """Return the HTML that a notebook shows: the photo and its words, with their own styles."""
        return None if self.pixels is None else photo_attention_html(self._shown(), self.alternatives)

    def _shown(self):
        if self.pixels is None:
            raise ValueError(f"This caption has no photo to show. {self.error or ''}".strip())
        return PhotoAttention(self.pixels, self.tokens, self.attention)


@dataclass(frozen=True)
class Box:
    """An object of a photo: its class, and its edges from 0 (left, top) to 1 (right, bottom)."""

    name: str
    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> "Box":
        """Read `[name, left, top, right, bottom]`."""
        try:
            name, *edges = values
            box = cls(str(name), *map(float, edges))
        except (TypeError, ValueError):
            raise ValueError(f"a box must be [class, left, top, right, bottom]. Received: {values!r}") from None
        if not (0 <= box.left <= box.right <= 1 and 0 <= box.top <= box.bottom <= 1):
            raise ValueError(f"the edges of a box must be ordered, from 0 to 1. Received: {values!r}")
        return box


def join_boxes(rows: Iterable[Mapping[str, Any]], path: str | os.PathLike) -> Iterator[dict[str, Any]]:
    """Add `boxes` to the rows of a manifest of photos, by the file name of the photo.

    Args:
        path: a table with the columns `image, class, left, top, right, bottom`, one box in each row.
    """
    boxes: dict[str, list[list[Any]]] = {}
    columns = {name: name for name in ("image", "class", *BOX_COLUMNS)}
    for row in Manifest(path, columns).rows():
        values = [row["class"], *(float(row[name]) for name in BOX_COLUMNS)]
        Box.from_list(values)  # reports a bad box here, with its values
        boxes.setdefault(os.path.basename(row["image"]), []).append(values)
    for values in rows:
        found = boxes.get(os.path.basename(values["image"]))
        yield dict(values) if found is None else {**values, "boxes": found}


def read_boxes(value: Any) -> list[Box]:
    """Read the `boxes` of a row of a manifest: a list, the JSON text of a list, or nothing."""
    if not value:
        return []
    return [Box.from_list(values) for values in (json.loads(value) if isinstance(value, str) else value)]


def boxes_of_words(words: Sequence[str], boxes: Sequence[Box]) -> list[list[Box]]:
    """Return the boxes of the objects that each word of a caption names."""
    by_name: dict[str, list[Box]] = {}
    for box in boxes:
        by_name.setdefault(box.name, []).append(box)
    names: dict[str, str] = {}
    for name in by_name:
        known = [name.replace(" ", "-"), *_SYNONYMS.get(name, "").split(), *([] if " " in name else [name])]
        for word in known:
            names |= dict.fromkeys((word, word + "s", word + "es", word.removesuffix("y") + "ies"), name)
    return [by_name[names[word]] if word in names else [] for word in words]


def regions_of_boxes(boxes: Sequence[Box], side: int) -> np.ndarray:
    """Return which regions of a square grid the boxes cover, `(side * side,)`, row by row.

    A region counts if its center lies in a box, or the center of a box lies in it.
    """
    centers = (np.arange(side) + 0.5) / side
    covered = np.zeros((side, side), bool)
    for box in boxes:
        edges = (box.top, box.bottom), (box.left, box.right)
        rows, columns = ((centers >= low) & (centers <= high) for low, high in edges)
        covered |= rows[:, np.newaxis] & columns
        row, column = (min(int((low + high) / 2 * side), side - 1) for low, high in edges)
        covered[row, column] = True
    return covered.reshape(-1)


def count_pointing(caption: Caption, boxes: Sequence[Box]) -> np.ndarray:
    """Count words that name an object with a box, and how many of them the attention hits, for the pointing game.

    Returns:
        `(4,)`: words, hits of the strongest region, hits of the middle of the photo, expected hits of a random region.
    """
    counts = np.zeros(4)
    if caption.attention is None:
        return counts
    for weights, named in zip(caption.attention, boxes_of_words(caption.tokens, boxes), strict=True):
        if named:
            side = len(weights)
            row, column = np.unravel_index(int(np.argmax(weights)), weights.shape)
            centers = (np.arange(side) + 0.5) / side
            points = [
                ((column + 0.5) / side, (row + 0.5) / side),
                (0.5, 0.5),
                *((x, y) for y in centers for x in centers),
            ]
            inside = np.array(
                [any(box.left <= x <= box.right and box.top <= y <= box.bottom for box in named) for x, y in points]
            )
            counts += [1, inside[0], inside[1], inside[2:].mean()]
    return counts


def pointing_game(counts: Sequence[np.ndarray]) -> dict[str, MetricResult]:
    """Measure whether attention points at what captions name (Zhang et al. 2016, "Top-down Neural Attention").

    Of the words that name an object with a box, `pointing` is the share whose strongest region has its center inside
    such a box. `pointing_middle` asks the same of the middle of the photo, `pointing_chance` of a random region.

    Args:
        counts: of `count_pointing` for each photo.

    Returns:
        Nothing if no word names an object with a box.
    """
    table = np.asarray(counts)
    if not table[:, 0].any():
        return {}
    results = {}
    for place, name in enumerate(("pointing", "pointing_middle", "pointing_chance"), 1):
        statistics = table[:, [place, 0]]
        items = np.full(len(statistics), math.nan)
        np.divide(statistics[:, 0], statistics[:, 1], out=items, where=statistics[:, 1] > 0)
        total = statistics.sum(axis=0)
        results[name] = MetricResult(name, _ratio(total), items, statistics, _ratio, {"words": float(total[1])})
    return results


def _ratio(total):
    return float(total[0] / total[1]) if total[1] else 0.0
