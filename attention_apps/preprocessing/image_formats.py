"""What TensorFlow leaves out of image files, in graph code.

The EXIF rotation of JPEG and PNG, the number of scans of a JPEG, the size and the compressed texts of a PNG, the first
frame of a GIF, and the header of a BMP.
"""

import tensorflow as tf

_HEADER_BYTES = 2**18  # EXIF precedes the pixels and has at most 64 KiB
_MAX_EXIF_SEGMENTS = 64
_MAX_ENTRIES = 512
_ORIENTATION_TAG = 0x0112
_PNG, _EXIF_SEGMENT, _EXIF_CHUNK, _PIXELS_CHUNK, _LITTLE_ENDIAN = (
    int.from_bytes(mark) for mark in (b"\x89PNG", b"Exif", b"eXIf", b"IDAT", b"II")
)


def exif_orientation(contents: tf.Tensor) -> tf.Tensor:
    """Return the orientation tag of a JPEG or PNG file, 1 to 8. Without a tag it is 1 (upright)."""
    data = tf.io.decode_raw(tf.strings.substr(contents, 0, _HEADER_BYTES), tf.uint8)
    data = tf.cast(tf.pad(data, [[0, 1]]), tf.int64)  # reading past the end gives zero
    is_png = _number(data, 0, 4) == _PNG
    block = tf.cond(is_png, lambda: _find_in_png(data), lambda: _find_in_jpeg(data))
    return tf.cond(block > 0, lambda: _tiff_orientation(data, block), lambda: tf.constant(1, tf.int64))


def turn_upright(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Rotate and mirror an image `(height, width, channels)` according to its EXIF orientation."""
    is_turned, is_mirrored, is_flipped = (
        tf.reduce_any(orientation == orientations) for orientations in ((5, 6, 7, 8), (2, 3, 6, 7), (3, 4, 7, 8))
    )
    image = tf.cond(is_turned, lambda: tf.transpose(image, (1, 0, 2)), lambda: image)
    image = tf.cond(is_mirrored, lambda: tf.reverse(image, [1]), lambda: image)
    return tf.cond(is_flipped, lambda: tf.reverse(image, [0]), lambda: image)


def _find_in_jpeg(data: tf.Tensor) -> tf.Tensor:
    """Return the start of the TIFF block inside the EXIF segment, or 0."""

    def is_exif(position):
        return (_number(data, position, 2) == 0xFFE1) & (_number(data, position + 4, 4) == _EXIF_SEGMENT)

    def is_other_segment(position):
        marker, length = _number(data, position, 2), _number(data, position + 2, 2)
        return (marker >= 0xFFC0) & (marker != 0xFFDA) & (length >= 2) & ~is_exif(position)  # FFDA: pixels follow

    (position,) = tf.while_loop(
        is_other_segment,
        lambda position: (position + 2 + _number(data, position + 2, 2),),
        (tf.constant(2, tf.int64),),
        maximum_iterations=_MAX_EXIF_SEGMENTS,
    )
    return tf.where(is_exif(position), position + 10, 0)


def _find_in_png(data: tf.Tensor) -> tf.Tensor:
    """Return the start of the TIFF block inside the eXIf chunk that precedes the pixels, or 0."""

    def is_other_chunk(position):
        kind = _number(data, position + 4, 4)
        return (kind > 0) & (kind != _EXIF_CHUNK) & (kind != _PIXELS_CHUNK)

    (position,) = tf.while_loop(
        is_other_chunk,
        lambda position: (position + 12 + _number(data, position, 4),),
        (tf.constant(8, tf.int64),),
        maximum_iterations=_MAX_EXIF_SEGMENTS,
    )
    return tf.where(_number(data, position + 4, 4) == _EXIF_CHUNK, position + 8, 0)


def _tiff_orientation(data: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
    little_endian = _number(data, start, 2) == _LITTLE_ENDIAN
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


def png_sides(contents: tf.Tensor) -> tf.Tensor:
    """Return the width and height `(2,)` of a PNG. It is an error if the file does not begin with them."""
    is_first = tf.strings.substr(contents, 12, 4) == "IHDR"  # libpng skips unknown chunks before it
    digits = tf.io.decode_raw(tf.where(is_first, tf.strings.substr(contents, 16, 8), ""), tf.uint8)
    digits = tf.reshape(digits, (2, 4))
    return tf.reduce_sum(tf.cast(digits, tf.int64) * [2**24, 2**16, 2**8, 1], axis=-1)


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

    def is_inside(marker, scans, segments):
        is_limited = (scans <= MAX_SCANS) & (segments < _MAX_JPEG_SEGMENTS)
        return is_limited & (marker < markers[-1]) & (read(marker + 1) != _END_OF_IMAGE)

    def skip(marker, scans, segments):
        code = read(marker + 1)
        length = tf.maximum(256 * read(marker + 2) + read(marker + 3), 2)
        has_length = (code >= _FIRST_SEGMENT) & (code != _START_OF_IMAGE)
        after = tf.searchsorted(markers, [marker + 2 + tf.where(has_length, length, 0)])[0]
        marker = markers[tf.minimum(after, tf.size(markers) - 1)]
        return marker, scans + tf.cast(code == _START_OF_SCAN, tf.int32), segments + 1

    _, scans, segments = tf.while_loop(is_inside, skip, (markers[0], 0, 0))
    return (scans > MAX_SCANS) | (segments >= _MAX_JPEG_SEGMENTS)


# The compressed texts of a PNG. libpng unpacks up to 8 MB of each and keeps a thousand of them.

# Programs that keep EXIF, IPTC, XMP and a comment as texts write fewer than ten.
MAX_COMPRESSED_TEXTS = 20


def has_too_many_texts(contents: tf.Tensor) -> tf.Tensor:
    """Return whether a PNG file may have more than `MAX_COMPRESSED_TEXTS` chunks of the kinds `zTXt` and `iTXt`.

    It counts these names anywhere in the file: one appears in pixels by chance once in two gigabytes.
    """
    data = tf.pad(tf.io.decode_raw(contents, tf.uint8), [[0, 3]])
    ends = (data[1:-2] == ord("T")) & (data[2:-1] == ord("X")) & (data[3:] == ord("t"))
    is_text = ends & ((data[:-3] == ord("z")) | (data[:-3] == ord("i")))
    return tf.math.count_nonzero(is_text) > MAX_COMPRESSED_TEXTS


# The first frame of a GIF. TensorFlow decodes all frames, and a file of a few megabytes can hold gigabytes of frames.

_IMAGE, _EXTENSION, _TRAILER = 0x2C, 0x21, b"\x3b"
_GIF_HEADER_BYTES = 13
_DESCRIPTOR_BYTES = 10
# Each block has at most 255 bytes. Blocks are read one at a time.
_MAX_BLOCKS = 20_000


def first_frame(contents: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the file with its first frame only, its height and width `(2,)`, and whether it has a frame.

    Height and width are those of the frame or of the screen, whichever is larger.
    """
    data = tf.io.decode_raw(contents, tf.uint8)
    length = tf.size(data)
    data = tf.pad(data, [[0, _GIF_HEADER_BYTES + _DESCRIPTOR_BYTES]])  # reading past the end gives zero

    def read(position):
        return tf.cast(data[tf.minimum(position, length)], tf.int32)

    def skip_extension(position, count):
        end, count = _skip_blocks(read, position + 2, length, count + 1)
        return end + 1, count

    frame, count = tf.while_loop(
        lambda position, count: (read(position) == _EXTENSION) & (position < length) & (count < _MAX_BLOCKS),
        skip_extension,
        (_GIF_HEADER_BYTES + _table_bytes(read(10)), 0),
    )
    blocks = frame + _DESCRIPTOR_BYTES + _table_bytes(read(frame + 9)) + 1
    end, _ = _skip_blocks(read, blocks, length, count)
    screen, shown = ([read(at + 2) + 256 * read(at + 3), read(at) + 256 * read(at + 1)] for at in (6, frame + 5))
    sides = tf.maximum(tf.stack(screen), tf.stack(shown))
    is_whole = (read(frame) == _IMAGE) & (end < length) & (read(end) == 0)
    return tf.strings.substr(contents, 0, end + 1) + _TRAILER, tf.cast(sides, tf.int64), is_whole


def _table_bytes(flags):
    """Return the size of a color table in bytes, from the flags before it."""
    return tf.where(flags >= 128, 3 * tf.bitwise.left_shift(2, flags % 8), 0)


def _skip_blocks(read, position, length, count):
    """Return the position of the empty block that ends a list of blocks, and the number of blocks read."""
    return tf.while_loop(
        lambda position, count: (read(position) > 0) & (position < length) & (count < _MAX_BLOCKS),
        lambda position, count: (position + 1 + read(position), count + 1),
        (position, count),
    )


def read_bmp_header(contents: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return height and width `(2,)`, and whether the file has true color.

    True color is 24 or 32 bits per pixel, uncompressed and without a color table. It is an error if the file ends
    within the header.
    """
    header = tf.io.decode_raw(tf.strings.substr(contents, 14, 20), tf.int32)
    header = tf.cast(tf.ensure_shape(header, (5,)), tf.int64)
    header_bytes, width, height, planes_and_depth, compression = tf.unstack(header)
    depth = planes_and_depth // 2**16 % 2**16
    is_true_color = ((depth == 24) | (depth == 32)) & (compression == 0) & (header_bytes % 2**32 >= 40)
    return tf.abs(tf.stack([height, width])), is_true_color  # a negative height means that the top row comes first
