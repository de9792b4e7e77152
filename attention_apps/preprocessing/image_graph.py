"""From a photo's bytes to model-sized pixels in TensorFlow graph code, for the application and its export."""

import enum

import tensorflow as tf

from attention_apps.preprocessing.bmp import bmp_sides, decode_true_colour, is_true_colour
from attention_apps.preprocessing.each_row import each_row
from attention_apps.preprocessing.exif import exif_orientation, turn_upright
from attention_apps.preprocessing.gif import first_frame
from attention_apps.preprocessing.jpeg import has_too_many_scans

# Enough for photos of 64 megapixels, the most that common phones and full-frame cameras make. Decoding takes up to 13
# bytes a pixel, see docs/security.md.
MAX_PIXELS = 80_000_000
FITS = ("squash", "crop")
_JPEG_MAGIC = b"\xff\xd8\xff"
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_GIF_MAGIC = b"GIF8"
_BMP_MAGIC = b"BM"
_JPEG, _PNG, _GIF, _BMP, _OTHER = range(5)


class ImageStatus(enum.IntEnum):
    """What became of an image in `decode_in_graph`."""

    DECODED = 0
    BROKEN = 1  # empty, truncated or damaged
    UNSUPPORTED = 2  # neither JPEG, PNG, GIF nor BMP of 24 or 32 bits
    TOO_LARGE = 3  # more than MAX_PIXELS, or a JPEG of more than MAX_SCANS scans


def is_jpeg_or_png(contents: bytes) -> bool:
    """Whether bytes begin as those of a JPEG or PNG file do."""
    return contents.startswith((_JPEG_MAGIC, _PNG_MAGIC))


def decode_in_graph(image_bytes: tf.Tensor, size: int, fit: str = "squash") -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes and resizes a batch of files, see `decode_image`; one that cannot be decoded does not fail the others.

    Args:
        image_bytes: the files' bytes, a string tensor `(batch,)`.
        size: side of the square result.
        fit: see `resize_image`.

    Returns:
        Images `(batch, size, size, 3)`, uint8, black where there is none; an `ImageStatus` `(batch,)`, int32.
    """

    def decode(contents):
        image, status = decode_image(contents)
        return resize_image(image, size, fit), status

    black = tf.zeros((size, size, 3), tf.uint8)
    return each_row(decode, image_bytes, (black, tf.constant(ImageStatus.BROKEN, tf.int32)))


def decode_image(contents: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes one image file: JPEG and PNG upright, with transparent parts on white; the first frame of a GIF, as large
    as that frame is, and BMP of 24 or 32 bits, both without transparency.

    Returns:
        The image `(height, width, 3)`, uint8, and its `ImageStatus`; a black pixel if that is not `DECODED`.

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
    """Resizes an image `(height, width, 3)` to a square, uint8, with antialiasing.

    Args:
        image: pixels of 0 to 255.
        size: side of the result.
        fit: `"squash"` keeps the whole photo and changes its proportions; `"crop"` keeps its central square.
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
    """Numbers of about 0 to 255 as uint8."""
    return tf.cast(tf.clip_by_value(tf.round(image), 0.0, 255.0), tf.uint8)


def to_rgb(image: tf.Tensor) -> tf.Tensor:
    """Grey, grey with alpha, RGB or RGBA `(height, width, 1 to 4)`, uint8, as RGB on white."""
    channels = tf.shape(image)[-1]
    has_alpha = channels % 2 == 0
    colours = tf.where(channels <= 2, 1, 3)
    rgb = tf.repeat(image[..., :colours], 3 // colours, axis=-1)
    return tf.cond(has_alpha, lambda: _on_white(rgb, image[..., colours:]), lambda: rgb)


def _on_white(rgb: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    rgb, alpha = tf.cast(rgb, tf.uint16), tf.cast(alpha, tf.uint16)  # 255 times 255 and the rounding fit
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
            # The same pixels, bit for bit, as libjpeg-turbo gives elsewhere (Pillow, OpenCV).
            _JPEG: lambda: tf.io.decode_jpeg(contents, channels=3, dct_method="INTEGER_ACCURATE"),
            _PNG: lambda: _decode_png(contents),
            _GIF: lambda: tf.io.decode_gif(contents)[0],
            _BMP: lambda: decode_true_colour(contents),
        },
    )
    has_exif = (kind == _JPEG) | (kind == _PNG)
    return tf.cond(has_exif, lambda: turn_upright(image, exif_orientation(contents)), lambda: image)


def _decode_png(contents: tf.Tensor) -> tf.Tensor:
    """With `channels=3` TensorFlow would show the colours that lie hidden under full transparency.

    With 4 it gives an image without alpha the largest number of the file's bit depth as alpha: at 4 bits, 15.
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
    return tf.where(is_true_colour(contents), _size_status(bmp_sides(contents)), ImageStatus.UNSUPPORTED)


def _other_status(contents: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.strings.length(contents) == 0, ImageStatus.BROKEN, ImageStatus.UNSUPPORTED)


def _png_sides(contents: tf.Tensor) -> tf.Tensor:
    digits = tf.reshape(tf.io.decode_raw(tf.strings.substr(contents, 16, 8), tf.uint8), (2, 4))
    return tf.reduce_sum(tf.cast(digits, tf.int64) * [2**24, 2**16, 2**8, 1], axis=-1)
