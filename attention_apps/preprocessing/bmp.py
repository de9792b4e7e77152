"""The header of a BMP file, read in TensorFlow graph code."""

import tensorflow as tf


def bmp_sides(contents: tf.Tensor) -> tf.Tensor:
    """Height and width `(2,)`; the height of a file whose rows go down is negative in it."""
    return tf.abs(tf.stack([_signed(contents, 22), _signed(contents, 18)]))


def is_true_colour(contents: tf.Tensor) -> tf.Tensor:
    """Whether it has 24 or 32 bits a pixel, neither compressed nor with a table of colours."""
    depth, compression = _number(contents, 28, 2), _number(contents, 30, 4)
    return ((depth == 24) | (depth == 32)) & (compression == 0) & (_number(contents, 14, 4) >= 40)


def decode_true_colour(contents: tf.Tensor) -> tf.Tensor:
    """The image `(height, width, 3)`, uint8; the fourth byte of 32 bits has no agreed meaning and is left out."""
    return tf.io.decode_bmp(contents)[..., :3]


def _signed(contents, position):
    number = _number(contents, position, 4)
    return tf.where(number >= 2**31, number - 2**32, number)


def _number(contents, position, length):
    """An unsigned number, its low byte first; it is an error where the file ends before it."""
    digits = tf.io.decode_raw(tf.strings.substr(contents, position, length), tf.uint8)
    places = tf.constant([256**place for place in range(length)], tf.int64)
    return tf.reduce_sum(tf.cast(tf.ensure_shape(digits, (length,)), tf.int64) * places)
