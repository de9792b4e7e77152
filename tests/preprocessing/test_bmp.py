import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from attention_apps.preprocessing.bmp import bmp_sides, decode_true_color, is_true_color

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)


def encode(image):
    buffer = io.BytesIO()
    image.save(buffer, "BMP")
    return buffer.getvalue()


PLAIN = encode(PIL.Image.fromarray(PIXELS))


def test_sides_and_pixels_of_24_bits():
    assert is_true_color(PLAIN)
    np.testing.assert_array_equal(bmp_sides(PLAIN), (5, 7))
    np.testing.assert_array_equal(decode_true_color(PLAIN), PIXELS)


def test_rows_that_go_down():
    downward = PLAIN[:22] + (-5).to_bytes(4, "little", signed=True) + PLAIN[26:]
    np.testing.assert_array_equal(bmp_sides(downward), (5, 7))
    np.testing.assert_array_equal(decode_true_color(downward), PIXELS[::-1])


def test_32_bits_lose_the_fourth_byte():
    rows = np.concatenate([PIXELS[::-1, :, ::-1], np.full((5, 7, 1), 9, np.uint8)], axis=-1)
    header = PLAIN[:28] + (32).to_bytes(2, "little") + PLAIN[30:54]
    contents = header + rows.tobytes()
    contents = contents[:2] + len(contents).to_bytes(4, "little") + contents[6:]
    assert is_true_color(contents)
    np.testing.assert_array_equal(decode_true_color(contents), PIXELS)


@pytest.mark.parametrize("mode", ["P", "L", "1"])
def test_tables_of_colors_are_none(mode):
    assert not is_true_color(encode(PIL.Image.fromarray(PIXELS).convert(mode)))


def test_a_file_that_ends_in_its_header_is_an_error():
    with pytest.raises(tf.errors.InvalidArgumentError):
        is_true_color(PLAIN[:29])
