"""Read the EXIF orientation of a JPEG or PNG photo, and rotate the photo, in TensorFlow graph code."""

import tensorflow as tf

_HEADER_BYTES = 2**18  # EXIF precedes the pixels and has at most 64 KiB
_MAX_SEGMENTS = 64
_MAX_ENTRIES = 512
_ORIENTATION_TAG = 0x0112


def exif_orientation(contents: tf.Tensor) -> tf.Tensor:
    """Return the orientation tag of a JPEG or PNG file, 1 to 8. Without a tag it is 1 (upright)."""
    data = tf.io.decode_raw(tf.strings.substr(contents, 0, _HEADER_BYTES), tf.uint8)
    data = tf.cast(tf.pad(data, [[0, 1]]), tf.int64)  # reading past the end gives zero
    is_png = _number(data, 0, 4) == _code("\x89PNG")
    block = tf.cond(is_png, lambda: _find_in_png(data), lambda: _find_in_jpeg(data))
    return tf.cond(block > 0, lambda: _tiff_orientation(data, block), lambda: tf.constant(1, tf.int64))


def turn_upright(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Rotate and mirror an image `(height, width, channels)` according to its EXIF orientation."""

    def apply_if(orientations, change, image):
        return tf.cond(tf.reduce_any(orientation == orientations), lambda: change(image), lambda: image)

    image = apply_if((5, 6, 7, 8), lambda x: tf.transpose(x, (1, 0, 2)), image)
    image = apply_if((2, 3, 6, 7), lambda x: tf.reverse(x, [1]), image)
    return apply_if((3, 4, 7, 8), lambda x: tf.reverse(x, [0]), image)


def _find_in_jpeg(data: tf.Tensor) -> tf.Tensor:
    """Return the start of the TIFF block inside the EXIF segment, or 0."""

    def is_exif(position):
        return (_number(data, position, 2) == 0xFFE1) & (_number(data, position + 4, 4) == _code("Exif"))

    def is_other_segment(position):
        marker, length = _number(data, position, 2), _number(data, position + 2, 2)
        return (marker >= 0xFFC0) & (marker != 0xFFDA) & (length >= 2) & ~is_exif(position)  # FFDA: pixels follow

    def next_segment(position):
        return (position + 2 + _number(data, position + 2, 2),)

    position = _skip(is_other_segment, next_segment, first=2)
    return tf.where(is_exif(position), position + 10, 0)


def _find_in_png(data: tf.Tensor) -> tf.Tensor:
    """Return the start of the TIFF block inside the eXIf chunk that precedes the pixels, or 0."""

    def is_other_chunk(position):
        kind = _number(data, position + 4, 4)
        return (kind > 0) & (kind != _code("eXIf")) & (kind != _code("IDAT"))

    def next_chunk(position):
        return (position + 12 + _number(data, position, 4),)

    position = _skip(is_other_chunk, next_chunk, first=8)
    return tf.where(_number(data, position + 4, 4) == _code("eXIf"), position + 8, 0)


def _skip(condition, body, first: int) -> tf.Tensor:
    (position,) = tf.while_loop(condition, body, (tf.constant(first, tf.int64),), maximum_iterations=_MAX_SEGMENTS)
    return position


def _tiff_orientation(data: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
    little_endian = _number(data, start, 2) == _code("II")
    directory = start + _number(data, start + 4, 4, little_endian)
    count = tf.minimum(_number(data, directory, 2, little_endian), _MAX_ENTRIES)
    entries = directory + 2 + 12 * tf.range(count)
    is_orientation = _number(data, entries, 2, little_endian) == _ORIENTATION_TAG
    value = _number(data, tf.reduce_max(tf.where(is_orientation, entries, 0)) + 8, 2, little_endian)
    is_valid = tf.reduce_any(is_orientation) & (value >= 1) & (value <= 8)
    return tf.where(is_valid, value, 1)


def _number(data: tf.Tensor, position, width: int, little_endian=False) -> tf.Tensor:
    """Return the unsigned numbers of `width` bytes at one or more positions."""
    index = tf.expand_dims(tf.cast(position, tf.int64), -1) + tf.range(width, dtype=tf.int64)
    digits = tf.gather(data, tf.clip_by_value(index, 0, tf.size(data, tf.int64) - 1))
    powers = [256**power for power in range(width)]
    return tf.reduce_sum(digits * tf.where(little_endian, tf.constant(powers, tf.int64), powers[::-1]), -1)


def _code(letters: str) -> int:
    return int.from_bytes(letters.encode("latin-1"), "big")
