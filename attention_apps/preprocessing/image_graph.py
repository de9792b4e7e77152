"""Decode photos, resize them for a model and augment them for training, in TensorFlow graph code.

The application and its export decode and resize with the same code.
"""

import enum
import re
from collections.abc import Callable, Iterable

import tensorflow as tf

from attention_apps.preprocessing.image_formats import (
    exif_orientation,
    first_frame,
    has_too_many_scans,
    has_too_many_texts,
    png_sides,
    read_bmp_header,
    turn_upright,
)

# Enough for photos of 64 megapixels, the most that common phones and full-frame cameras take. Decoding needs up to 21
# bytes per pixel, see docs/security.md.
MAX_PIXELS = 80_000_000
FITS = ("squash", "crop")
JPEG_MAGIC = b"\xff\xd8\xff"
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_GIF_MAGIC = b"GIF8"
_BMP_MAGIC = b"BM"
_JPEG, _PNG, _GIF, _BMP, _OTHER = range(5)


class ImageStatus(enum.IntEnum):
    """The result of decoding an image in `decode_in_graph`."""

    DECODED = 0
    BROKEN = 1  # empty, truncated or damaged
    UNSUPPORTED = 2  # not JPEG, PNG, GIF or BMP of 24 or 32 bits
    TOO_LARGE = 3  # more than MAX_PIXELS, MAX_SCANS of a JPEG or MAX_COMPRESSED_TEXTS of a PNG


# The status of a file of each kind, from _JPEG to _OTHER, that must not be decoded: a JPEG with too many scans, a PNG
# with too many compressed texts, a GIF without a whole frame, a BMP without true color.
_REFUSALS = (
    ImageStatus.TOO_LARGE,
    ImageStatus.TOO_LARGE,
    ImageStatus.BROKEN,
    ImageStatus.UNSUPPORTED,
    ImageStatus.UNSUPPORTED,
)


def decode_in_graph(image_bytes: tf.Tensor, size: int, fit: str = "squash") -> tuple[tf.Tensor, tf.Tensor]:
    """Decode and resize a batch of files with `decode_image`. A file that cannot be decoded does not fail the others.

    Args:
        image_bytes: the files' bytes, a string tensor `(batch,)`.
        size: side of the square result.
        fit: see `resize_image`.

    Returns:
        Images `(batch, size, size, 3)`, uint8, black if not decoded, and an `ImageStatus` `(batch,)`, int32.
    """

    def decode(contents):
        image, status = decode_image(contents)
        return resize_image(image, size, fit), status

    black = tf.zeros((size, size, 3), tf.uint8)
    return map_rows_ignoring_errors(decode, image_bytes, (black, tf.constant(ImageStatus.BROKEN, tf.int32)))


def map_rows_ignoring_errors(
    function: Callable[[tf.Tensor], tuple[tf.Tensor, ...]], rows: tf.Tensor, otherwise: tuple[tf.Tensor, ...]
) -> tuple[tf.Tensor, ...]:
    """Apply a function to each row and stack the results. A row that raises an error does not fail the others.

    Args:
        function: maps a row to tensors.
        rows: a tensor with the batch axis first.
        otherwise: the result for a row that failed.

    Returns:
        Tensors with the batch axis first. Results of different sizes are padded with zeros to the largest.
    """
    count = tf.shape(rows, tf.int64)[0]
    numbered = tf.data.Dataset.from_tensor_slices((tf.range(count), rows))
    results = numbered.map(
        lambda number, row: (number, *function(row)), num_parallel_calls=tf.data.AUTOTUNE
    ).ignore_errors()
    stacked = results.concatenate(tf.data.Dataset.from_tensors((count, *otherwise))).padded_batch(count + 1)
    numbers, *columns = stacked.get_single_element()
    last = tf.size(numbers, tf.int64) - 1  # the position of `otherwise`, used for every failed row
    place_of = tf.tensor_scatter_nd_update(tf.fill([count + 1], last), numbers[:, tf.newaxis], tf.range(last + 1))
    return tuple(tf.gather(column, place_of[:count]) for column in columns)


def decode_image(contents: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Decode one image file.

    JPEG and PNG are rotated upright, and transparent parts become white. Of a GIF, the first frame is decoded in its
    own size. BMP needs 24 or 32 bits. GIF and BMP are read without transparency.

    Returns:
        The image `(height, width, 3)`, uint8, and its `ImageStatus`. The image is one black pixel if not `DECODED`.

    Raises:
        tf.errors.InvalidArgumentError: the file is broken.
    """
    kind = tf.constant(_OTHER)
    for number, magic in ((_JPEG, JPEG_MAGIC), (_PNG, PNG_MAGIC), (_GIF, _GIF_MAGIC), (_BMP, _BMP_MAGIC)):
        kind = tf.where(tf.strings.substr(contents, 0, len(magic)) == magic, number, kind)
    contents, status = _check(contents, kind)
    image = tf.cond(
        status == ImageStatus.DECODED,
        lambda: _decode(contents, kind),
        lambda: tf.zeros((1, 1, 3), tf.uint8),
    )
    return tf.ensure_shape(image, (None, None, 3)), status


def resize_image(image: tf.Tensor, size: int, fit: str = "squash") -> tf.Tensor:
    """Resize an image `(height, width, 3)` to a square, uint8, with antialiasing.

    Args:
        image: pixels from 0 to 255.
        size: side of the result.
        fit: `"squash"` keeps the whole photo and changes its aspect ratio; `"crop"` keeps its central square.
    """
    if fit not in FITS:
        raise ValueError(f"`fit` must be one of {list(FITS)}. Received: fit={fit!r}")
    if fit == "crop":
        sides = tf.shape(image)[:2]
        side = tf.reduce_min(sides)
        top, left = tf.unstack((sides - side) // 2)
        image = image[top : top + side, left : left + side]
    return to_pixels(tf.image.resize(image, (size, size), antialias=True))


def to_pixels(image: tf.Tensor) -> tf.Tensor:
    """Round and clip numbers to uint8."""
    return tf.cast(tf.clip_by_value(tf.round(image), 0.0, 255.0), tf.uint8)


def to_rgb(image: tf.Tensor) -> tf.Tensor:
    """Convert gray, gray with alpha, RGB or RGBA `(height, width, 1 to 4)`, uint8, to RGB on white."""
    channels = tf.shape(image)[-1]
    has_alpha = channels % 2 == 0
    colors = tf.where(channels <= 2, 1, 3)
    rgb = tf.repeat(image[..., :colors], 3 // colors, axis=-1)

    def on_white():
        wide, alpha = tf.cast(rgb, tf.uint16), tf.cast(image[..., colors:], tf.uint16)  # holds 255 * 255 plus rounding
        return tf.cast((wide * alpha + 255 * (255 - alpha) + 127) // 255, tf.uint8)

    return tf.cond(has_alpha, on_white, lambda: rgb)


def _check(contents: tf.Tensor, kind: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the contents to decode, of a GIF with its first frame only, and their `ImageStatus`."""
    # Of each format: the contents to decode, height and width, and whether they can be decoded.
    checks = {
        _JPEG: lambda: (
            contents,
            tf.io.extract_jpeg_shape(contents, tf.int64)[:2],
            ~has_too_many_scans(contents),
        ),
        _PNG: lambda: (contents, png_sides(contents), ~has_too_many_texts(contents)),
        _GIF: lambda: first_frame(contents),
        _BMP: lambda: (contents, *read_bmp_header(contents)),
    }
    unknown = contents, tf.zeros([2], tf.int64), tf.constant(False)
    checked, sides, is_good = tf.switch_case(kind, checks, default=lambda: unknown)
    refusal = tf.where(tf.strings.length(contents) == 0, ImageStatus.BROKEN, tf.gather(_REFUSALS, kind))
    is_too_large = tf.reduce_prod(tf.cast(sides, tf.float64)) > MAX_PIXELS
    good = tf.where(is_too_large, ImageStatus.TOO_LARGE, ImageStatus.DECODED)
    return checked, tf.where(is_good, good, refusal)


def _decode(contents: tf.Tensor, kind: tf.Tensor) -> tf.Tensor:
    image = tf.switch_case(
        kind,
        {
            # Bit-identical to libjpeg-turbo in Pillow and OpenCV.
            _JPEG: lambda: tf.io.decode_jpeg(contents, channels=3, dct_method="INTEGER_ACCURATE"),
            _PNG: lambda: _decode_png(contents),
            _GIF: lambda: tf.io.decode_gif(contents)[0],
            _BMP: lambda: tf.io.decode_bmp(contents)[..., :3],  # the fourth byte of 32-bit pixels is ignored
        },
    )
    has_exif = (kind == _JPEG) | (kind == _PNG)
    return tf.cond(has_exif, lambda: turn_upright(image, exif_orientation(contents)), lambda: image)


def _decode_png(contents: tf.Tensor) -> tf.Tensor:
    """Decode a PNG to RGB on white.

    With `channels=3` TensorFlow would show colors hidden by full transparency. With 4 channels, the alpha of an image
    without transparency is the largest number of the file's bit depth: 15 at 4 bits.
    """
    image = tf.io.decode_png(contents, channels=4)
    depth = tf.io.decode_raw(tf.strings.substr(contents, 24, 1), tf.uint8)
    opaque = 255 // tf.bitwise.left_shift(tf.constant(1, tf.uint8), 8 - tf.minimum(depth, 8))
    is_opaque = tf.reduce_all(image[..., 3] == opaque)
    return tf.cond(is_opaque, lambda: image[..., :3], lambda: to_rgb(image))


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
