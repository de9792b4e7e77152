import io
import struct
import time

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from attention_apps.preprocessing.gif import first_frame

CUT = tf.function(first_frame, input_signature=[tf.TensorSpec((), tf.string)])
FRAMES = [PIL.Image.fromarray(np.random.default_rng(seed).integers(0, 256, (17, 29, 3), np.uint8)) for seed in range(4)]


def animation(frames, **options):
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], **options)
    return buffer.getvalue()


@pytest.mark.parametrize("options", [{}, {"comment": b"a comment " * 99}, {"interlace": 0}], ids=str)
def test_the_first_frame_of_an_animation_is_as_pillow_reads_it(options):
    contents = animation(FRAMES, loop=0, **options)
    frame, sides, is_whole = CUT(contents)
    assert is_whole
    assert len(frame.numpy()) < len(contents) / 2
    np.testing.assert_array_equal(sides, (17, 29))
    expected = PIL.Image.open(io.BytesIO(contents)).convert("RGB")
    np.testing.assert_array_equal(tf.io.decode_gif(frame), [np.asarray(expected)])


@pytest.mark.parametrize("length", [0, 6, 12, 13, 20, 800, 1000, -4])
def test_a_file_that_ends_too_soon_has_no_frame(length):
    contents = animation(FRAMES[:1])[:length]
    assert not CUT(contents)[2]


def test_the_size_is_that_of_the_frame_and_not_of_the_canvas():
    contents = animation(FRAMES[:1])
    place = contents.index(b"\x2c" + struct.pack("<4H", 0, 0, 29, 17))
    huge = contents[: place + 5] + struct.pack("<2H", 60000, 50000) + contents[place + 9 :]
    np.testing.assert_array_equal(CUT(huge)[1], (50000, 60000))


def test_blocks_without_end_take_bounded_time():
    header = b"GIF89a" + struct.pack("<HHBBB", 5, 5, 0, 0, 0)
    CUT(header)
    start = time.process_time()
    assert not CUT(header + b"\x21\xfe" + b"\x01a" * 2_000_000)[2]
    assert not CUT(header + b"\x21\xfe\x01a\x00" * 1_000_000)[2]  # and extensions without end
    assert time.process_time() - start < 10
