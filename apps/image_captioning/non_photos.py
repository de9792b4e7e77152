"""Draws pictures that are no photos, on which a captioner should be unsure.

python non_photos.py FOLDER [--count 200] [--first 0]

A sixth each: plain colors, noise, patterns, charts, screenshots and pages of text. Each picture depends only on its
number. To train with such pictures (`run.py prepare --non-photos`), draw others than those to measure with.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIZE = 320
_TEXT = (
    "the report shows that costs rose in the second quarter while income stayed level and the board will meet again "
    "to decide whether the plan can go ahead as it was agreed before"
)
_WORDS = _TEXT.split()


def draw_plain(random: np.random.Generator) -> Image.Image:
    color = (0, 0, 0) if random.random() < 0.3 else tuple(random.integers(0, 256, 3).tolist())
    return Image.new("RGB", (SIZE, SIZE), color)


def draw_noise(random: np.random.Generator) -> Image.Image:
    channels = 1 if random.random() < 0.5 else 3
    side = int(random.choice([SIZE, SIZE // 4, SIZE // 16]))
    values = random.integers(0, 256, (side, side, channels)).astype(np.uint8)
    return Image.fromarray(np.broadcast_to(values, (side, side, 3)).copy()).resize(
        (SIZE, SIZE), Image.Resampling.NEAREST
    )


def draw_pattern(random: np.random.Generator) -> Image.Image:
    y, x = np.mgrid[:SIZE, :SIZE] / SIZE
    angle, waves = random.uniform(0, np.pi), random.uniform(1, 12)
    place = np.cos(angle) * x + np.sin(angle) * y
    value = np.clip(place, 0, 1) if random.random() < 0.3 else 0.5 + 0.5 * np.sin(2 * np.pi * waves * place)
    if random.random() < 0.5:
        value = value > 0.5
    first, second = random.integers(0, 256, (2, 3))
    return Image.fromarray((first + (second - first) * np.asarray(value, float)[..., np.newaxis]).astype(np.uint8))


def draw_chart(random: np.random.Generator) -> Image.Image:
    image = Image.new("RGB", (SIZE, SIZE), "white")
    draw = ImageDraw.Draw(image)
    left, bottom = 40, SIZE - 40
    draw.line([(left, 20), (left, bottom), (SIZE - 20, bottom)], fill="black", width=2)
    count = int(random.integers(4, 10))
    values = random.uniform(0.1, 1, count) * (bottom - 30)
    step = (SIZE - 70) / count
    color = tuple(random.integers(0, 200, 3).tolist())
    kind = random.integers(3)
    points = [(left + 15 + step * (i + 0.5), bottom - value) for i, value in enumerate(values)]
    if kind == 0:
        for x, y in points:
            draw.rectangle([x - step / 3, y, x + step / 3, bottom], fill=color)
    elif kind == 1:
        draw.line(points, fill=color, width=3)
    else:
        for x, y in random.uniform(50, SIZE - 50, (40, 2)):
            draw.ellipse([x - 3, y - 3, x + 3, y + 3], fill=color)
    for i in range(5):
        draw.text((8, bottom - i * (bottom - 30) / 5 - 6), str(i * 20), fill="black")
    draw.text((SIZE / 3, 4), " ".join(random.choice(_WORDS, 3)), fill="black")
    return image


def draw_screenshot(random: np.random.Generator) -> Image.Image:
    dark = random.random() < 0.5
    background, panel, ink = (
        ((30, 30, 36), (48, 48, 56), (220, 220, 220)) if dark else ("white", (235, 238, 242), "black")
    )
    image = Image.new("RGB", (SIZE, SIZE), background)
    draw = ImageDraw.Draw(image)
    draw.rectangle([0, 0, SIZE, 24], fill=panel)
    for i in range(3):
        draw.ellipse([8 + 16 * i, 7, 18 + 16 * i, 17], fill=tuple(random.integers(60, 256, 3).tolist()))
    draw.rectangle([0, 24, int(random.integers(50, 110)), SIZE], fill=panel)
    for row in range(int(random.integers(6, 14))):
        y = 34 + row * 20
        draw.text((8, y), str(random.choice(_WORDS)), fill=ink)
        if random.random() < 0.3:
            draw.rectangle([130, y, 200, y + 14], fill=(52, 110, 220))
        draw.text((134, y), " ".join(random.choice(_WORDS, int(random.integers(2, 6)))), fill=ink)
    return image


def draw_page(random: np.random.Generator) -> Image.Image:
    image = Image.new("RGB", (SIZE, SIZE), tuple(random.integers(235, 256, 3).tolist()))
    draw = ImageDraw.Draw(image)
    size = int(random.integers(9, 22))
    font = ImageFont.load_default(size)
    y = 16
    while y < SIZE - 20:
        line = " ".join(random.choice(_WORDS, max(2, 420 // (size * 5))))
        if random.random() < 0.85:
            draw.text((16, y), line, fill=(20, 20, 20), font=font)
        y += int(size * 1.4)
    return image


KINDS: tuple[Callable[[np.random.Generator], Image.Image], ...] = (
    draw_plain,
    draw_noise,
    draw_pattern,
    draw_chart,
    draw_screenshot,
    draw_page,
)


def draw_all(count: int, first: int = 0) -> list[Image.Image]:
    """Draws pictures of all kinds in turn, from number `first` on."""
    return [KINDS[number % len(KINDS)](np.random.default_rng(number)) for number in range(first, first + count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first picture")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(draw_all(options.count, options.first), options.first):
        image.save(options.folder / f"{number:03}.png")


if __name__ == "__main__":
    main()
