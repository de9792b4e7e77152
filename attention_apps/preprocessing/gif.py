"""Extract the first frame of a GIF file in TensorFlow graph code.

TensorFlow decodes all frames of an animation, and a file of a few megabytes can hold gigabytes of frames.
"""

import tensorflow as tf

_IMAGE, _EXTENSION, _TRAILER = 0x2C, 0x21, b"\x3b"
_HEADER_BYTES = 13
_DESCRIPTOR_BYTES = 10
# Each block has at most 255 bytes. Blocks are read one at a time.
_MAX_BLOCKS = 20_000


def first_frame(contents: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the file with its first frame only, the frame's height and width `(2,)`, and whether it has a frame."""
    data = tf.io.decode_raw(contents, tf.uint8)
    length = tf.size(data)
    data = tf.pad(data, [[0, _HEADER_BYTES + _DESCRIPTOR_BYTES]])  # reading past the end gives zero

    def read(position):
        return tf.cast(data[tf.minimum(position, length)], tf.int32)

    frame, count = _find_frame(read, _HEADER_BYTES + _table_bytes(read(10)), length)
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
