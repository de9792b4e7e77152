"""What TensorFlow leaves out of image files, in graph code.

The EXIF rotation of JPEG and PNG, the number of scans of a JPEG, the first frame of a GIF, and the header of a BMP.
"""

import tensorflow as tf

_HEADER_BYTES = 2**18  # EXIF precedes the pixels and has at most 64 KiB
_MAX_EXIF_SEGMENTS = 64
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
    (position,) = tf.while_loop(condition, body, (tf.constant(first, tf.int64),), maximum_iterations=_MAX_EXIF_SEGMENTS)
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


# The number of scans of a JPEG. libjpeg decodes thousands of empty scans for minutes.

# Encoders write about ten scans. libtiff has the same limit for JPEGs embedded in its files.
MAX_SCANS = 100
# Segments are read one at a time. Photos have about 20.
_MAX_JPEG_SEGMENTS = 4000
_FIRST_SEGMENT, _FIRST_RESTART, _START_OF_IMAGE, _END_OF_IMAGE, _START_OF_SCAN = 0xC0, 0xD0, 0xD8, 0xD9, 0xDA


def has_too_many_scans(contents: tf.Tensor) -> tf.Tensor:
    """Return whether a JPEG file has more than `MAX_SCANS` scans, or far too many segments."""
    data = tf.io.decode_raw(contents, tf.uint8)
    data = tf.pad(data, [[0, 4]])  # reading past the end gives zero
    follows_ff = data[:-1] == 0xFF
    # This upper bound suffices for nearly all files. It includes embedded thumbnails and videos.
    upper_bound = tf.math.count_nonzero(follows_ff & (data[1:] == _START_OF_SCAN), dtype=tf.int32)
    return tf.cond(upper_bound > MAX_SCANS, lambda: _count_scans(data, follows_ff), lambda: tf.constant(False))


def _count_scans(data: tf.Tensor, follows_ff: tf.Tensor) -> tf.Tensor:
    """Walk from marker to marker up to the end of the image, as libjpeg does, and count the scans."""
    codes = data[1:]
    is_restart = (codes >= _FIRST_RESTART) & (codes < _START_OF_IMAGE)
    markers = tf.where(follows_ff & (codes != 0) & (codes != 0xFF) & ~is_restart)[:, 0]
    markers = tf.concat([markers, [tf.size(data, tf.int64)]], 0)

    def read(position):
        return tf.cast(data[tf.minimum(position, tf.size(data, tf.int64) - 1)], tf.int64)

    def next_marker(position):
        return markers[tf.minimum(tf.searchsorted(markers, position[tf.newaxis])[0], tf.size(markers) - 1)]

    def is_inside(marker, scans, segments):
        is_limited = (scans <= MAX_SCANS) & (segments < _MAX_JPEG_SEGMENTS)
        return is_limited & (marker < markers[-1]) & (read(marker + 1) != _END_OF_IMAGE)

    def skip(marker, scans, segments):
        code = read(marker + 1)
        length = tf.maximum(256 * read(marker + 2) + read(marker + 3), 2)
        has_length = (code >= _FIRST_SEGMENT) & (code != _START_OF_IMAGE)
        after = marker + 2 + tf.where(has_length, length, 0)
        return next_marker(after), scans + tf.cast(code == _START_OF_SCAN, tf.int32), segments + 1

    first = next_marker(tf.constant(0, tf.int64))
    _, scans, segments = tf.while_loop(is_inside, skip, (first, 0, 0))
    return (scans > MAX_SCANS) | (segments >= _MAX_JPEG_SEGMENTS)


# The first frame of a GIF. TensorFlow decodes all frames, and a file of a few megabytes can hold gigabytes of frames.

_IMAGE, _EXTENSION, _TRAILER = 0x2C, 0x21, b"\x3b"
_GIF_HEADER_BYTES = 13
_DESCRIPTOR_BYTES = 10
# Each block has at most 255 bytes. Blocks are read one at a time.
_MAX_BLOCKS = 20_000


def first_frame(contents: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the file with its first frame only, the frame's height and width `(2,)`, and whether it has a frame."""
    data = tf.io.decode_raw(contents, tf.uint8)
    length = tf.size(data)
    data = tf.pad(data, [[0, _GIF_HEADER_BYTES + _DESCRIPTOR_BYTES]])  # reading past the end gives zero

    def read(position):
        return tf.cast(data[tf.minimum(position, length)], tf.int32)

    frame, count = _find_frame(read, _GIF_HEADER_BYTES + _table_bytes(read(10)), length)
    blocks = frame + _DESCRIPTOR_BYTES + _table_bytes(read(frame + 9)) + 1
    end, _ = _skip_blocks(read, blocks, length, count)
    sides = tf.stack([read(frame + 7) + 256 * read(frame + 8), read(frame + 5) + 256 * read(frame + 6)])
    is_whole = (read(frame) == _IMAGE) & (end < length) & (read(end) == 0)
    return tf.strings.substr(contents, 0, end + 1) + _TRAILER, tf.cast(sides, tf.int64), is_whole


def _table_bytes(flags):
    """Return the size of a color table in bytes, from the flags before it."""
    return tf.where(flags >= 128, 3 * tf.bitwise.left_shift(2, flags % 8), 0)


def _find_frame(read, position, length):
    """Return the position after the extensions, and the number of blocks read."""

    def extension_follows(position, count):
        return (read(position) == _EXTENSION) & (position < length) & (count < _MAX_BLOCKS)

    def skip(position, count):
        end, count = _skip_blocks(read, position + 2, length, count + 1)
        return end + 1, count

    return tf.while_loop(extension_follows, skip, (position, 0))


def _skip_blocks(read, position, length, count):
    """Return the position of the empty block that ends a list of blocks, and the number of blocks read."""

    def block_follows(position, count):
        return (read(position) > 0) & (position < length) & (count < _MAX_BLOCKS)

    return tf.while_loop(
        block_follows, lambda position, count: (position + 1 + read(position), count + 1), (position, count)
    )


def bmp_sides(contents: tf.Tensor) -> tf.Tensor:
    """Return height and width `(2,)`. The header stores a negative height if the top row comes first."""
    return tf.abs(tf.stack([_signed_bmp_number(contents, 22), _signed_bmp_number(contents, 18)]))


def is_true_color(contents: tf.Tensor) -> tf.Tensor:
    """Return whether the file has 24 or 32 bits per pixel, uncompressed and without a color table."""
    depth, compression = _bmp_number(contents, 28, 2), _bmp_number(contents, 30, 4)
    return ((depth == 24) | (depth == 32)) & (compression == 0) & (_bmp_number(contents, 14, 4) >= 40)


def decode_true_color(contents: tf.Tensor) -> tf.Tensor:
    """Return the image `(height, width, 3)`, uint8. The fourth byte of 32-bit pixels is ignored."""
    return tf.io.decode_bmp(contents)[..., :3]


def _signed_bmp_number(contents, position):
    number = _bmp_number(contents, position, 4)
    return tf.where(number >= 2**31, number - 2**32, number)


def _bmp_number(contents, position, length):
    """Return an unsigned little-endian number. It is an error if the file ends before it."""
    digits = tf.io.decode_raw(tf.strings.substr(contents, position, length), tf.uint8)
    places = tf.constant([256**place for place in range(length)], tf.int64)
    return tf.reduce_sum(tf.cast(tf.ensure_shape(digits, (length,)), tf.int64) * places)
