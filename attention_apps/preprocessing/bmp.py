"""Read BMP files in TensorFlow graph code."""

import tensorflow as tf


def bmp_sides(contents: tf.Tensor) -> tf.Tensor:
    """Return height and width `(2,)`. The header stores a negative height if the top row comes first."""
    return tf.abs(tf.stack([_signed(contents, 22), _signed(contents, 18)]))


def is_true_color(contents: tf.Tensor) -> tf.Tensor:
    """Return whether the file has 24 or 32 bits per pixel, uncompressed and without a color table."""
    depth, compression = _number(contents, 28, 2), _number(contents, 30, 4)
    return ((depth == 24) | (depth == 32)) & (compression == 0) & (_number(contents, 14, 4) >= 40)


def decode_true_color(contents: tf.Tensor) -> tf.Tensor:
    """Return the image `(height, width, 3)`, uint8. The fourth byte of 32-bit pixels is ignored."""
    return tf.io.decode_bmp(contents)[..., :3]


def _signed(contents, position):
    number = _number(contents, position, 4)
    return tf.where(number >= 2**31, number - 2**32, number)


def _number(contents, position, length):
    """Return an unsigned little-endian number. It is an error if the file ends before it."""
    digits = tf.io.decode_raw(tf.strings.substr(contents, position, length), tf.uint8)
    places = tf.constant([256**place for place in range(length)], tf.int64)
    return tf.reduce_sum(tf.cast(tf.ensure_shape(digits, (length,)), tf.int64) * places)
