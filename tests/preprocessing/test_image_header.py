import io
import struct
import subprocess
import sys

import numpy as np
import PIL.Image
import pytest

from attention_apps.preprocessing.image_header import image_cost

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


def test_neither_tensorflow_nor_pillow_is_imported():
    program = "import sys, attention_apps.preprocessing.image_header; print({'tensorflow', 'PIL'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
