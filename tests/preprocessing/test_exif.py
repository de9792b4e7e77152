import io
import struct

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import tensorflow as tf

from attention_apps.preprocessing.exif import exif_orientation, turn_upright


@pytest.fixture(scope="module")
def read():
    signature = [tf.TensorSpec((), tf.string)]
    function = tf.function(exif_orientation, input_signature=signature)
    return lambda contents: int(function(contents))


def tiff(orientation, order="<", tag=0x0112, offset=8):
    """A TIFF block of three entries, of which the second is the orientation."""
    entries = [(0x0100, 4, 1, 640), (tag, 3, 1, orientation), (0x0128, 3, 1, 2)]
    block = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, offset) + bytes(offset - 8)
    block += struct.pack(f"{order}H", len(entries))
    for name, kind, count, value in entries:
        block += struct.pack(f"{order}HHI", name, kind, count)
        block += struct.pack(f"{order}HH", value, 0) if kind == 3 else struct.pack(f"{order}I", value)
    return block + bytes(4)


def segment(marker, payload):
    return struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload


def jpeg(*segments):
    return b"\xff\xd8" + b"".join(segments) + segment(0xDA, b"pixels") + b"\xff\xd9"


def png(*chunks):
    return b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(d)) + kind + d + bytes(4) for kind, d in chunks)


JFIF = segment(0xE0, b"JFIF\0" + bytes(9))
XMP = segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>")
COLOR_PROFILE = segment(0xE2, b"ICC_PROFILE\0" + bytes(60_000))


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_tag_is_read_in_either_byte_order(read, orientation, order):
    exif = segment(0xE1, b"Exif\0\0" + tiff(orientation, order))
    assert read(jpeg(exif)) == orientation
    assert read(jpeg(JFIF, XMP, COLOR_PROFILE, exif)) == orientation
    assert read(png((b"IHDR", bytes(13)), (b"eXIf", tiff(orientation, order, offset=20)))) == orientation


def test_a_file_without_the_tag_is_upright(read):
    assert read(jpeg(JFIF, XMP)) == 1
    assert read(jpeg(segment(0xE1, b"Exif\0\0" + tiff(6, tag=0x0113)))) == 1
    assert read(png((b"IHDR", bytes(13)), (b"IDAT", b"..."), (b"eXIf", tiff(6)))) == 1
    assert read(b"") == 1
    assert read(b"some text") == 1


@pytest.mark.parametrize("value", [0, 9, 300])
def test_a_value_without_meaning_is_upright(read, value):
    assert read(jpeg(segment(0xE1, b"Exif\0\0" + tiff(value)))) == 1


def test_damaged_exif_is_upright_or_some_orientation_and_never_an_error(read):
    good = jpeg(JFIF, segment(0xE1, b"Exif\0\0" + tiff(6)))
    for length in range(len(good)):
        assert read(good[:length]) in (1, 6)
    generator = np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(good)
        damaged[generator.integers(2, len(good))] = generator.integers(0, 256)
        assert 1 <= read(bytes(damaged)) <= 8
    assert read(jpeg(segment(0xE1, b"Exif\0\0" + b"II*\0\xff\xff\xff\xff"))) == 1
    assert read(b"\xff\xd8" + 500 * b"\xff\xe0\x00\x02") == 1  # segments without end
    assert read(png((b"IHDR", bytes(13)))[:8] + 500 * b"\0\0\0\0tEXt\0\0\0\0") == 1


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_is_turned_as_pillow_turns_it(orientation):
    image = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    PIL.Image.fromarray(image).save(buffer, "TIFF", exif=exif)
    expected = PIL.ImageOps.exif_transpose(PIL.Image.open(buffer))
    np.testing.assert_array_equal(turn_upright(image, tf.constant(orientation)), np.asarray(expected))
