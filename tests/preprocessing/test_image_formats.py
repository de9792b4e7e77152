import io
import re
import struct
import time
import zlib

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import tensorflow as tf

from attention_apps.preprocessing.image import read_image
from attention_apps.preprocessing.image_formats import (
    MAX_COMPRESSED_TEXTS,
    MAX_SCANS,
    exif_orientation,
    first_frame,
    has_too_many_scans,
    png_sides,
    read_bmp_header,
    turn_upright,
)
from attention_apps.preprocessing.image_graph import ImageStatus, decode_image, decode_in_graph


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


def jpeg_segment(code, payload):
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
        jpeg_segment(0xFE, b"a comment that says the image ends \xff\xd9 here"),
        b"\xff\x02\xff\xff",  # reserved, without a length: libjpeg looks for the next marker
        b"\xff\xff\xff\xff",
        b"\xff\xd0\xff\xd7\xff\x00",
        b"\xff\x01",
        jpeg_segment(0xE0, b"x" * 65_000),
    ],
    ids=["end in a comment", "reserved marker", "fill bytes", "restarts", "TEM", "long segment"],
)
def test_scans_cannot_be_hidden(is_refused, hidden_behind):
    assert is_refused(with_scans(3 * MAX_SCANS, hidden_behind))


def test_what_is_inside_a_segment_or_after_the_end_is_no_scan(is_refused):
    markers = b"\xff\xda\x00\x02" * 1000
    inside = PROGRESSIVE[:2] + jpeg_segment(0xE1, b"Exif\0\0" + markers) + PROGRESSIVE[2:]
    assert not is_refused(inside)
    assert not is_refused(PROGRESSIVE + markers)  # a video after the photo, as phones write it
    np.testing.assert_array_equal(read_image(inside), read_image(PROGRESSIVE))
    np.testing.assert_array_equal(read_image(PROGRESSIVE + markers), read_image(PROGRESSIVE))


def test_endless_segments_are_refused_in_little_time(is_refused):
    is_refused(with_scans(200))
    start = time.process_time()
    assert is_refused(PROGRESSIVE[:2] + jpeg_segment(0xE2, b"") * 1_000_000 + PROGRESSIVE[2:] + b"\xff\xda" * 200)
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


def png_with_texts(count, kind=b"zTXt"):
    """A PNG of one pixel with texts of 7.9 MB each, in 8 kB."""
    body = zlib.compress(b"a" * 7_900_000, 9)
    separator = b"\0\0" if kind == b"zTXt" else b"\0\1\0\0\0"
    chunks = [(kind, b"Comment%d" % number + separator + body) for number in range(count)]
    header, pixel = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0), zlib.compress(b"\0\x80")
    whole = [(b"IHDR", header), *chunks, (b"IDAT", pixel), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in whole
    )


@pytest.mark.parametrize("kind", [b"zTXt", b"iTXt"])
def test_a_png_whose_texts_unpack_to_gigabytes_is_refused(kind):
    start = time.process_time()
    for count in (MAX_COMPRESSED_TEXTS + 1, 600):
        with pytest.raises(ValueError, match=f"too slow to decode: .* {MAX_COMPRESSED_TEXTS} compressed texts"):
            read_image(png_with_texts(count, kind))
    _, status = tf.function(lambda one: decode_in_graph(one, 8))(tf.constant([png_with_texts(600, kind)]))
    assert status.numpy().tolist() == [ImageStatus.TOO_LARGE]
    assert time.process_time() - start < 8
    np.testing.assert_array_equal(read_image(png_with_texts(2, kind)), [[[128, 128, 128]]])


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


def test_the_size_is_that_of_the_frame_or_of_the_screen_whichever_is_larger():
    contents = animation(FRAMES[:1])
    place = contents.index(b"\x2c" + struct.pack("<4H", 0, 0, 29, 17))
    huge = contents[: place + 5] + struct.pack("<2H", 60000, 50000) + contents[place + 9 :]
    np.testing.assert_array_equal(CUT(huge)[1], (50000, 60000))
    screen = contents[:6] + struct.pack("<2H", 65535, 9) + contents[10:]
    np.testing.assert_array_equal(CUT(screen)[1], (17, 65535))


def test_blocks_without_end_take_bounded_time():
    header = b"GIF89a" + struct.pack("<HHBBB", 5, 5, 0, 0, 0)
    CUT(header)
    start = time.process_time()
    assert not CUT(header + b"\x21\xfe" + b"\x01a" * 2_000_000)[2]
    assert not CUT(header + b"\x21\xfe\x01a\x00" * 1_000_000)[2]  # and extensions without end
    assert time.process_time() - start < 10


BMP_PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)


def bmp_encode(image):
    buffer = io.BytesIO()
    image.save(buffer, "BMP")
    return buffer.getvalue()


PLAIN = bmp_encode(PIL.Image.fromarray(BMP_PIXELS))


def test_sides_and_pixels_of_24_bits():
    sides, is_true_color = read_bmp_header(PLAIN)
    assert is_true_color
    np.testing.assert_array_equal(sides, (5, 7))
    np.testing.assert_array_equal(decode_image(PLAIN)[0], BMP_PIXELS)


def test_rows_that_go_down():
    downward = PLAIN[:22] + (-5).to_bytes(4, "little", signed=True) + PLAIN[26:]
    np.testing.assert_array_equal(read_bmp_header(downward)[0], (5, 7))
    np.testing.assert_array_equal(decode_image(downward)[0], BMP_PIXELS[::-1])


def test_32_bits_lose_the_fourth_byte():
    rows = np.concatenate([BMP_PIXELS[::-1, :, ::-1], np.full((5, 7, 1), 9, np.uint8)], axis=-1)
    header = PLAIN[:28] + (32).to_bytes(2, "little") + PLAIN[30:54]
    contents = header + rows.tobytes()
    contents = contents[:2] + len(contents).to_bytes(4, "little") + contents[6:]
    assert read_bmp_header(contents)[1]
    np.testing.assert_array_equal(decode_image(contents)[0], BMP_PIXELS)


@pytest.mark.parametrize("mode", ["P", "L", "1"])
def test_tables_of_colors_are_none(mode):
    assert not read_bmp_header(bmp_encode(PIL.Image.fromarray(BMP_PIXELS).convert(mode)))[1]


@pytest.mark.parametrize("length", [0, 14, 20, 29, 33])
def test_a_bmp_that_ends_in_its_header_is_an_error(length):
    with pytest.raises(tf.errors.InvalidArgumentError):
        read_bmp_header(PLAIN[:length])


def test_the_sides_of_a_png():
    header = png((b"IHDR", struct.pack(">II", 300, 2**31) + bytes(5)))
    np.testing.assert_array_equal(png_sides(header), (300, 2**31))
    with pytest.raises(tf.errors.InvalidArgumentError):
        png_sides(header[:20])
    with pytest.raises(tf.errors.InvalidArgumentError):
        png_sides(header.replace(b"IHDR", b"vpAg"))
