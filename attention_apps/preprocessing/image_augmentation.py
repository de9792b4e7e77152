"""Photo augmentation for training: random crops, mirroring and color jitter."""

import re
from collections.abc import Iterable

import tensorflow as tf

from attention_apps.preprocessing.image_graph import resize_image, to_pixels

_SIDE_WORD = re.compile(r"\b(left|right)(most|hand|side|ward)?s?\b", re.IGNORECASE)
_GRAY_WEIGHTS = (0.299, 0.587, 0.114)


def may_flip(captions: Iterable[str]) -> bool:
    """Return whether a photo may be mirrored: no caption says left or right."""
    return not any(_SIDE_WORD.search(caption) for caption in captions)


def augment_image(
    image: tf.Tensor,
    seed: tf.Tensor,
    size: int,
    may_flip: tf.Tensor | bool = True,
    smallest_area: float = 0.5,
    largest_stretch: float = 1.33,
    jitter: float = 0.4,
) -> tf.Tensor:
    """Crop, resize, mirror and recolor a photo at random, as a pure function of its seed, in graph code.

    Args:
        image: `(height, width, 3)`, uint8.
        seed: `(2,)` integers; the same seed gives the same result.
        size: side of the square result.
        may_flip: whether the photo may be mirrored. If so, it is mirrored half of the time.
        smallest_area: the smallest fraction of the photo to keep. The fraction is drawn from this to 1.
        largest_stretch: the crop's aspect ratio differs from the photo's by up to this factor.
        jitter: brightness, contrast and saturation change by up to this fraction.

    Returns:
        `(size, size, 3)`, uint8.
    """
    cut_seed, flip_seed, color_seed = tf.unstack(tf.random.split(seed, 3))
    image = resize_image(random_cut(image, cut_seed, smallest_area, largest_stretch), size)
    mirrored = (tf.random.stateless_uniform((), flip_seed) < 0.5) & may_flip
    image = tf.cond(mirrored, lambda: tf.reverse(image, [1]), lambda: image)
    return jitter_colors(image, color_seed, jitter)


def random_cut(image: tf.Tensor, seed: tf.Tensor, smallest_area: float, largest_stretch: float) -> tf.Tensor:
    """Crop the image `(height, width, 3)` to a rectangle of random area, aspect ratio and position."""
    area, stretch, top, left = tf.unstack(tf.random.stateless_uniform((4,), seed))
    area = smallest_area + (1.0 - smallest_area) * area
    stretch = largest_stretch ** (2.0 * stretch - 1.0)
    sides = tf.cast(tf.shape(image)[:2], tf.float32)
    kept = sides * tf.minimum(tf.stack([tf.sqrt(area * stretch), tf.sqrt(area / stretch)]), 1.0)
    kept = tf.clip_by_value(tf.round(kept), 1.0, sides)
    start = tf.cast(tf.stack([top, left]) * (sides - kept + 1.0), tf.int32)
    top, left = tf.unstack(start)
    height, width = tf.unstack(tf.cast(kept, tf.int32))
    return image[top : top + height, left : left + width]


def jitter_colors(image: tf.Tensor, seed: tf.Tensor, jitter: float) -> tf.Tensor:
    """Change brightness, contrast and saturation of `(height, width, 3)` by a factor of 1 ± `jitter` each."""
    factors = tf.random.stateless_uniform((3,), seed, 1.0 - jitter, 1.0 + jitter)
    brightness, contrast, saturation = tf.unstack(factors)
    image = tf.cast(image, tf.float32) * brightness
    gray = tf.reduce_sum(image * _GRAY_WEIGHTS, axis=-1, keepdims=True)
    image = gray + (image - gray) * saturation
    mean = tf.reduce_mean(gray)
    return to_pixels(mean + (image - mean) * contrast)
