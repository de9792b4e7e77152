"""Decode photos and resize them for a model in TensorFlow graph code, in the application and in its export."""

import enum

import tensorflow as tf

from attention_apps.preprocessing.bmp import bmp_sides, decode_true_color, is_true_color
from attention_apps.preprocessing.exif import exif_orientation, turn_upright
from attention_apps.preprocessing.gif import first_frame
from attention_apps.preprocessing.jpeg import has_too_many_scans
from attention_apps.preprocessing.map_rows_ignoring_errors import map_rows_ignoring_errors

# Enough for photos of 64 megapixels, the most that common phones and full-frame cameras take. Decoding needs up to 13
# bytes per pixel, see docs/security.md.
MAX_PIXELS = 80_000_000
FITS = ("squash", "crop")
_JPEG_MAGIC = b"\xff\xd8\xff"
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_GIF_MAGIC = b"GIF8"
_BMP_MAGIC = b"BM"
_JPEG, _PNG, _GIF, _BMP, _OTHER = range(5)


class ImageStatus(enum.IntEnum):
    """The result of decoding an image in `decode_in_graph`."""

    DECODED = 0
    BROKEN = 1  # empty, truncated or damaged
    UNSUPPORTED = 2  # not JPEG, PNG, GIF or BMP of 24 or 32 bits
    TOO_LARGE = 3  # more than MAX_PIXELS, or a JPEG with more than MAX_SCANS scans


def is_jpeg_or_png(contents: bytes) -> bool:
    """Return whether bytes begin like a JPEG or PNG file."""
    return contents.startswith((_JPEG_MAGIC, _PNG_MAGIC))


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


def decode_image(contents: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Decode one image file.

    JPEG and PNG are rotated upright, and transparent parts become white. Of a GIF, the first frame is decoded in its
    own size. BMP needs 24 or 32 bits. GIF and BMP are read without transparency.

    Returns:
        The image `(height, width, 3)`, uint8, and its `ImageStatus`. The image is one black pixel if not `DECODED`.

    Raises:
        tf.errors.InvalidArgumentError: the file is broken.
    """
    kind = _kind(contents)
    contents, status = tf.switch_case(
        kind,
        {
            _JPEG: lambda: (contents, _jpeg_status(contents)),
            _PNG: lambda: (contents, _size_status(_png_sides(contents))),
            _GIF: lambda: _check_gif(contents),
            _BMP: lambda: (contents, _bmp_status(contents)),
        },
        default=lambda: (contents, _other_status(contents)),
    )
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
    return tf.cond(has_alpha, lambda: _on_white(rgb, image[..., colors:]), lambda: rgb)


def _on_white(rgb: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    rgb, alpha = tf.cast(rgb, tf.uint16), tf.cast(alpha, tf.uint16)  # holds 255 * 255 plus rounding
    return tf.cast((rgb * alpha + 255 * (255 - alpha) + 127) // 255, tf.uint8)


def _kind(contents: tf.Tensor) -> tf.Tensor:
    kind = tf.constant(_OTHER)
    for number, magic in ((_JPEG, _JPEG_MAGIC), (_PNG, _PNG_MAGIC), (_GIF, _GIF_MAGIC), (_BMP, _BMP_MAGIC)):
        kind = tf.where(tf.strings.substr(contents, 0, len(magic)) == magic, number, kind)
    return kind


def _decode(contents: tf.Tensor, kind: tf.Tensor) -> tf.Tensor:
    image = tf.switch_case(
        kind,
        {
            # Bit-identical to libjpeg-turbo in Pillow and OpenCV.
            _JPEG: lambda: tf.io.decode_jpeg(contents, channels=3, dct_method="INTEGER_ACCURATE"),
            _PNG: lambda: _decode_png(contents),
            _GIF: lambda: tf.io.decode_gif(contents)[0],
            _BMP: lambda: decode_true_color(contents),
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


def _size_status(sides: tf.Tensor) -> tf.Tensor:
    is_too_large = tf.reduce_prod(tf.cast(sides, tf.float64)) > MAX_PIXELS
    return tf.where(is_too_large, ImageStatus.TOO_LARGE, ImageStatus.DECODED)


def _jpeg_status(contents: tf.Tensor) -> tf.Tensor:
    status = _size_status(tf.cast(tf.io.extract_jpeg_shape(contents)[:2], tf.int64))
    return tf.where(has_too_many_scans(contents), ImageStatus.TOO_LARGE, status)


def _check_gif(contents: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    contents, sides, is_whole = first_frame(contents)
    return contents, tf.where(is_whole, _size_status(sides), ImageStatus.BROKEN)


def _bmp_status(contents: tf.Tensor) -> tf.Tensor:
    return tf.where(is_true_color(contents), _size_status(bmp_sides(contents)), ImageStatus.UNSUPPORTED)


def _other_status(contents: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.strings.length(contents) == 0, ImageStatus.BROKEN, ImageStatus.UNSUPPORTED)


def _png_sides(contents: tf.Tensor) -> tf.Tensor:
    digits = tf.reshape(tf.io.decode_raw(tf.strings.substr(contents, 16, 8), tf.uint8), (2, 4))
    return tf.reduce_sum(tf.cast(digits, tf.int64) * [2**24, 2**16, 2**8, 1], axis=-1)
