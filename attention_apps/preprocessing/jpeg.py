"""Count the scans of a JPEG in TensorFlow graph code before it is decoded.

Every scan of a progressive JPEG covers the whole image, and an empty scan takes ten bytes. A small file can therefore
keep libjpeg busy for minutes.
"""

import tensorflow as tf

# Encoders write about ten scans. libtiff has the same limit for JPEGs embedded in its files.
MAX_SCANS = 100
# Segments are read one at a time. Photos have about 20.
_MAX_SEGMENTS = 4000
_FIRST_SEGMENT, _FIRST_RESTART, _START_OF_IMAGE, _END_OF_IMAGE, _START_OF_SCAN = 0xC0, 0xD0, 0xD8, 0xD9, 0xDA


def has_too_many_scans(contents: tf.Tensor) -> tf.Tensor:
    """Return whether a JPEG file has more than `MAX_SCANS` scans, or far too many segments."""
    data = tf.io.decode_raw(contents, tf.uint8)
    data = tf.pad(data, [[0, 4]])  # reading past the end gives zero
    follows_ff = data[:-1] == 0xFF
    # This upper bound suffices for nearly all files. It includes embedded thumbnails and videos.
    upper_bound = tf.math.count_nonzero(follows_ff & (data[1:] == _START_OF_SCAN), dtype=tf.int32)
    return tf.cond(upper_bound > MAX_SCANS, lambda: _walk(data, follows_ff), lambda: tf.constant(False))


def _walk(data: tf.Tensor, follows_ff: tf.Tensor) -> tf.Tensor:
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
        is_limited = (scans <= MAX_SCANS) & (segments < _MAX_SEGMENTS)
        return is_limited & (marker < markers[-1]) & (read(marker + 1) != _END_OF_IMAGE)

    def skip(marker, scans, segments):
        code = read(marker + 1)
        length = tf.maximum(256 * read(marker + 2) + read(marker + 3), 2)
        has_length = (code >= _FIRST_SEGMENT) & (code != _START_OF_IMAGE)
        after = marker + 2 + tf.where(has_length, length, 0)
        return next_marker(after), scans + tf.cast(code == _START_OF_SCAN, tf.int32), segments + 1

    first = next_marker(tf.constant(0, tf.int64))
    _, scans, segments = tf.while_loop(is_inside, skip, (first, 0, 0))
    return (scans > MAX_SCANS) | (segments >= _MAX_SEGMENTS)
