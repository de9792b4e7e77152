import io
import re
import struct
import time

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from attention_apps.preprocessing.image import read_image
from attention_apps.preprocessing.image_graph import ImageStatus, decode_in_graph
from attention_apps.preprocessing.jpeg import MAX_SCANS, has_too_many_scans

PIXELS = np.random.default_rng(0).integers(0, 256, (24, 40, 3), np.uint8)


def encode(pixels=PIXELS, **options):
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, "JPEG", **options)
    return buffer.getvalue()


PROGRESSIVE = encode(progressive=True)
SCANS = PROGRESSIVE.count(b"\xff\xda")


def with_scans(count, hidden_behind=b""):
    """A progressive JPEG whose last scan is repeated."""
    *_, last = re.finditer(b"\xff\xda", PROGRESSIVE)
    scan = PROGRESSIVE[last.start() : -2]
    return PROGRESSIVE[:-2] + hidden_behind + scan * (count - SCANS) + b"\xff\xd9"


def segment(code, payload):
    return bytes([0xFF, code]) + struct.pack(">H", len(payload) + 2) + payload


@pytest.fixture(scope="module")
def is_refused():
    check = tf.function(has_too_many_scans, input_signature=[tf.TensorSpec((), tf.string)])
    return lambda contents: bool(check(contents))


def test_normal_photos_pass(is_refused):
    assert SCANS == 10
    assert not is_refused(encode())
    assert not is_refused(PROGRESSIVE)
    assert not is_refused(with_scans(MAX_SCANS))


@pytest.mark.parametrize("count", [MAX_SCANS + 1, 6300])
def test_too_many_scans_are_refused(is_refused, count):
    assert is_refused(with_scans(count))


@pytest.mark.parametrize(
    "hidden_behind",
    [
        segment(0xFE, b"a comment that says the image ends \xff\xd9 here"),
        b"\xff\x02\xff\xff",  # reserved, without a length: libjpeg looks for the next marker
        b"\xff\xff\xff\xff",
        b"\xff\xd0\xff\xd7\xff\x00",
        b"\xff\x01",
        segment(0xE0, b"x" * 65_000),
    ],
    ids=["end in a comment", "reserved marker", "fill bytes", "restarts", "TEM", "long segment"],
)
def test_scans_cannot_be_hidden(is_refused, hidden_behind):
    assert is_refused(with_scans(3 * MAX_SCANS, hidden_behind))


def test_what_is_inside_a_segment_or_after_the_end_is_no_scan(is_refused):
    markers = b"\xff\xda\x00\x02" * 1000
    inside = PROGRESSIVE[:2] + segment(0xE1, b"Exif\0\0" + markers) + PROGRESSIVE[2:]
    assert not is_refused(inside)
    assert not is_refused(PROGRESSIVE + markers)  # a video after the photo, as phones write it
    np.testing.assert_array_equal(read_image(inside), read_image(PROGRESSIVE))
    np.testing.assert_array_equal(read_image(PROGRESSIVE + markers), read_image(PROGRESSIVE))


def test_endless_segments_are_refused_in_little_time(is_refused):
    is_refused(with_scans(200))
    start = time.process_time()
    assert is_refused(PROGRESSIVE[:2] + segment(0xE2, b"") * 1_000_000 + PROGRESSIVE[2:] + b"\xff\xda" * 200)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("contents", [b"", b"\xff", b"\xff\xd8\xff", b"\xff\xda" * 300, b"\xff\xda\xff" * 300])
def test_what_is_no_photo_does_not_fail(is_refused, contents):
    assert is_refused(contents) in (True, False)


def test_application_and_graph_refuse_before_they_decode():
    large = bytearray(with_scans(6300))
    start = large.index(b"\xff\xc2") + 5
    large[start : start + 4] = struct.pack(">HH", 8000, 9000)
    began = time.process_time()
    with pytest.raises(ValueError, match=f"too slow to decode: .* {MAX_SCANS} JPEG scans"):
        read_image(bytes(large))
    images, status = tf.function(lambda one: decode_in_graph(one, 8))(tf.constant([bytes(large), PROGRESSIVE]))
    assert time.process_time() - began < 8  # most of it to make the graph
    assert status.numpy().tolist() == [ImageStatus.TOO_LARGE, ImageStatus.DECODED]
    assert not images[0].numpy().any()
