import io
import struct
import subprocess
import sys
import time

import numpy as np
import PIL.Image
import pytest

from attention_apps.preprocessing.image_header import LARGEST_JPEG, gif_frame, image_cost, tag_bytes

HEIGHT, WIDTH = 37, 53


def encode(image_format, mode="RGB", **options):
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    PIL.Image.fromarray(pixels).convert(mode).save(buffer, image_format, **options)
    return buffer.getvalue()


FILES = {
    "jpeg": encode("JPEG"),
    "progressive": encode("JPEG", progressive=True, comment=b"\xff\xc0 is no size here"),
    "png": encode("PNG"),
    "gif": encode("GIF", comment=b"x" * 700),
    "bmp": encode("BMP"),
    "bmp palette": encode("BMP", "P"),
    "webp": encode("WEBP"),
    "webp lossless": encode("WEBP", lossless=True),
    "webp extended": encode("WEBP", "RGBA", exif=b"Exif\0\0II*\0"),
    "ico": encode("ICO", sizes=[(WIDTH, HEIGHT), (16, 16)]),
    "ico of bitmaps": encode("ICO", sizes=[(16, 16), (WIDTH, HEIGHT)], bitmap_format="bmp"),
}


@pytest.mark.parametrize("name", FILES)
def test_the_pixels_of_a_file(name):
    expected = 2 * HEIGHT * WIDTH if name == "ico of bitmaps" else HEIGHT * WIDTH  # these have a mask below
    assert image_cost(FILES[name]) == expected


@pytest.mark.parametrize("name", FILES)
def test_no_beginning_of_a_file_fails(name):
    costs = {image_cost(FILES[name][:length]) for length in range(min(len(FILES[name]), 900))}
    assert 0 in costs
    assert max(costs) <= 2 * HEIGHT * WIDTH or name.startswith("ico")


@pytest.mark.parametrize("data", [b"", b"a text", b"\xff\xd8\xff", b"BM", b"GIF89a", b"%PDF", bytes(100)])
def test_what_is_unknown_costs_nothing(data):
    assert image_cost(data) == 0


def test_the_frame_of_a_gif_may_be_larger_than_its_screen():
    gif = bytearray(FILES["gif"])
    gif[6:10] = struct.pack("<HH", 1, 1)
    assert image_cost(bytes(gif)) == HEIGHT * WIDTH


def test_an_icon_counts_by_what_it_holds_and_not_by_its_directory():
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 20_000, 20_000) + bytes(9)
    entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(png), 22)
    assert image_cost(struct.pack("<HHH", 0, 1, 1) + entry + png) == 400_000_000


def test_more_icons_than_are_looked_at_are_too_many():
    assert image_cost(struct.pack("<HHH", 0, 1, 257) + bytes(300 * 16)) == LARGEST_JPEG


def test_a_png_with_another_chunk_before_its_size_costs_nothing_and_is_refused():
    assert image_cost(FILES["png"][:8] + struct.pack(">I4sII", 13, b"vpAg", 10, 10) + bytes(9) + FILES["png"][8:]) == 0


def test_neither_tensorflow_nor_pillow_is_imported():
    program = "import sys, attention_apps.preprocessing.image_header; print({'tensorflow', 'PIL'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_segments_and_blocks_without_end_take_bounded_time():
    start = time.process_time()
    assert image_cost(b"\xff\xd8" + b"\xff\xe0\0\2" * 5_000_000 + FILES["jpeg"][2:]) == LARGEST_JPEG
    gif = FILES["gif"]
    for blocks in (b"!\xfe\1a\0" * 4_000_000, b"!\xfe" + b"\1a" * 8_000_000, b"!\xfe\0" * 5_000_000):
        contents = gif[:10] + b"\0" + gif[11:13] + blocks
        assert gif_frame(contents) is None
        assert image_cost(contents) == HEIGHT * WIDTH
    assert time.process_time() - start < 2


def tiff(tags, order="<", is_big=False):
    """A TIFF file of tags, each with its type, its number of values and its value."""
    count, entry, start = ("Q", "HHQQ", 16) if is_big else ("H", "HHII", 8)
    head = (b"II" if order == "<" else b"MM") + (
        struct.pack(f"{order}HHHQ", 43, 8, 0, start) if is_big else struct.pack(f"{order}HI", 42, start)
    )
    return head + struct.pack(order + count, len(tags)) + b"".join(struct.pack(order + entry, *tag) for tag in tags)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("is_big", [False, True])
def test_what_the_tags_of_a_tiff_claim(order, is_big):
    assert tag_bytes(tiff([(256, 3, 1, 7), (273, 4, 9, 0), (700, 1, 1000, 0)], order, is_big)) == 36 + 1000
    assert tag_bytes(tiff([(700, 12, 2**32 - 1, 0)] * 3, order, is_big)) == 3 * 8 * (2**32 - 1)
    loop = 16 if is_big else 8
    assert tag_bytes(tiff([(0x8769, 4, 1, loop), (0x8825, 4, 1, loop), (700, 1, 50, 0)], order, is_big)) == 50


def test_tags_of_damaged_files_and_of_other_files():
    exif = encode("TIFF")
    assert 0 < tag_bytes(exif) < len(exif)
    assert {tag_bytes(exif[:length]) for length in range(len(exif))} <= set(range(len(exif)))
    for contents in (b"", b"II", b"MM\0*", b"II*\0\xff\xff\xff\xff", FILES["png"]):
        assert tag_bytes(contents) == 0
    folders = [(0x8769, 4, 1, 8 + place) for place in range(2000)]
    assert tag_bytes(tiff(folders)) > 1 << 30  # more folders than a photo has
