import io
import os
import struct
import sys
import time
import zlib

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from attention_apps.preprocessing import image as image_module
from attention_apps.preprocessing.image import read_image
from attention_apps.preprocessing.image_graph import MAX_PIXELS, ImageStatus, decode_in_graph

HEIGHT, WIDTH = 23, 37


@pytest.fixture(scope="module")
def photo():
    """A smooth picture, so that lossy formats keep it, with no symmetry."""
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    channels = (rows * 11 % 256, columns * 6 % 256, (rows + 2 * columns) * 2 % 256)
    return np.stack(channels, -1).astype(np.uint8)


def encode(image, image_format, **options):
    buffer = io.BytesIO()
    image = image if isinstance(image, PIL.Image.Image) else PIL.Image.fromarray(image)
    image.save(buffer, image_format, **options)
    return buffer.getvalue()


def png_chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_header(width, height, bits=8, colors=2):
    header = struct.pack(">IIBBBBB", width, height, bits, colors, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header)


def deep_png(array):
    """A PNG of 16 bits with colors, which Pillow cannot write."""
    height, width, channels = array.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in array)
    header = png_header(width, height, bits=16, colors={3: 2, 4: 6}[channels])
    return header + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")


@pytest.mark.parametrize("image_format", ["PNG", "BMP", "TIFF", "WEBP", "TGA", "ICO", "PCX"])
def test_lossless_formats_give_the_same_pixels(photo, image_format, tmp_path):
    options = {"WEBP": {"lossless": True}, "ICO": {"sizes": [(WIDTH, HEIGHT)]}}.get(image_format, {})
    path = tmp_path / "photo.jpg"  # the contents count, not the name
    path.write_bytes(encode(photo, image_format, **options))
    for source in (path, str(path), path.read_bytes(), bytearray(path.read_bytes())):
        pixels = read_image(source)
        assert pixels.dtype == np.uint8
        np.testing.assert_array_equal(pixels, photo)


def test_pillow_images_and_arrays_are_read_as_they_are(photo):
    np.testing.assert_array_equal(read_image(PIL.Image.fromarray(photo)), photo)
    np.testing.assert_array_equal(read_image(photo), photo)
    np.testing.assert_array_equal(read_image(photo.astype(np.int64)), photo)
    np.testing.assert_array_equal(read_image(photo.astype(np.uint16) << 8), photo)
    np.testing.assert_array_equal(read_image(photo.astype("float32")), photo)
    np.testing.assert_array_equal(read_image(photo / 255.0), photo)
    np.testing.assert_array_equal(read_image(photo > 128), np.where(photo > 128, 255, 0))


def test_a_cmyk_tiff_is_read_as_pillow_reads_it(photo):
    inks = PIL.Image.fromarray(255 - np.concatenate([photo, photo[..., :1]], -1), "CMYK")
    np.testing.assert_array_equal(read_image(encode(inks, "TIFF")), np.asarray(inks.convert("RGB")))


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("options", [{"subsampling": 0}, {"subsampling": 2}, {"progressive": True, "quality": 30}])
def test_jpeg_pixels_equal_those_of_pillow(photo, mode, options):
    contents = encode(PIL.Image.fromarray(photo).convert(mode), "JPEG", **options)
    expected = PIL.Image.open(io.BytesIO(contents)).convert("RGB")
    np.testing.assert_array_equal(read_image(contents), np.asarray(expected))


@pytest.mark.parametrize("colors", [2, 16, 200])
@pytest.mark.parametrize("image_format", ["PNG", "GIF", "BMP"])
def test_palettes_of_any_depth(photo, colors, image_format):
    image = PIL.Image.fromarray(photo).quantize(colors)
    np.testing.assert_array_equal(read_image(encode(image, image_format)), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("mode", ["1", "L"])
@pytest.mark.parametrize("image_format", ["PNG", "TIFF", "BMP"])
def test_gray_and_black_and_white(photo, mode, image_format):
    image = PIL.Image.fromarray(photo).convert(mode)
    np.testing.assert_array_equal(read_image(encode(image, image_format)), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("image_format", ["PNG", "TIFF", "WEBP"])
def test_transparency_is_laid_on_white(photo, image_format):
    alpha = (np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH, 1) * 7 % 256).astype(np.uint8)
    options = {"lossless": True, "exact": True} if image_format == "WEBP" else {}
    pixels = read_image(encode(np.concatenate([photo, alpha], -1), image_format, **options))
    expected = (photo * (alpha / 255.0)) + 255.0 * (1.0 - alpha / 255.0)
    np.testing.assert_array_equal(pixels, np.rint(expected))


def test_transparent_colors_and_gray_with_alpha(photo):
    palette = PIL.Image.fromarray(photo).quantize(16)
    gray = PIL.Image.fromarray(photo).convert("L")
    value = int(np.asarray(gray)[3, 4])
    faded = gray.convert("LA")
    faded.putalpha(0)
    for contents, is_clear in [
        (encode(palette, "PNG", transparency=3), np.asarray(palette) == 3),
        (encode(palette, "GIF", transparency=3), np.asarray(palette) == 3),
        (encode(gray, "PNG", transparency=value), np.asarray(gray) == value),
        (encode(faded, "PNG"), np.full((HEIGHT, WIDTH), True)),
        (encode(faded, "TIFF"), np.full((HEIGHT, WIDTH), True)),
    ]:
        assert is_clear.any()
        assert (read_image(contents)[is_clear] == 255).all()


@pytest.mark.parametrize("image_format", ["PNG", "TIFF"])
def test_sixteen_bits_keep_the_upper_eight(photo, image_format):
    deep = photo[..., 0].astype(np.uint16) * 256 + 77
    for image in (PIL.Image.fromarray(deep), PIL.Image.fromarray(deep.astype(np.int32))):
        if image.mode == "I" and image_format == "PNG":
            continue
        pixels = read_image(encode(image, image_format))
        np.testing.assert_array_equal(pixels, np.repeat(photo[..., :1], 3, axis=-1))


def test_sixteen_bits_of_colors_keep_the_upper_eight(photo):
    deep = photo.astype(np.uint16) * 256 + 77
    np.testing.assert_array_equal(read_image(deep_png(deep)), photo)
    alpha = np.where(np.arange(WIDTH) < 9, 0, 65535).astype(np.uint16)
    alpha = np.broadcast_to(alpha[:, np.newaxis], (HEIGHT, WIDTH, 1))
    expected = np.where(alpha > 0, photo, 255)
    np.testing.assert_array_equal(read_image(deep_png(np.concatenate([deep, alpha], -1))), expected)


def test_numbers_of_32_bits_that_fit_into_eight_are_eight_bits(photo):
    gray = np.repeat(photo[..., :1], 3, axis=-1)
    image = PIL.Image.fromarray(photo[..., 0].astype(np.int32))
    assert image.mode == "I"
    np.testing.assert_array_equal(read_image(image), gray)
    np.testing.assert_array_equal(read_image(encode(image, "TIFF")), gray)


def test_gray_multiplied_by_its_alpha(photo):
    faded = PIL.Image.fromarray(photo).convert("LA")
    faded.putalpha(PIL.Image.fromarray(np.where(photo[..., 1] > 99, 255, 0).astype(np.uint8)))
    np.testing.assert_array_equal(read_image(faded.convert("La")), read_image(faded))


def test_float_tiff():
    image = PIL.Image.fromarray(np.array([[0.0, 0.5], [0.2, 1.0]], "float32"))
    np.testing.assert_array_equal(read_image(encode(image, "TIFF"))[..., 0], [[0, 128], [51, 255]])


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_rotation_is_honored(photo, orientation, image_format):
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    options = {"JPEG": {"quality": 95, "subsampling": 0}, "WEBP": {"lossless": True}}.get(image_format, {})
    turned = read_image(encode(photo, image_format, exif=exif, **options)).astype(int)
    upright = {
        1: photo,
        2: photo[:, ::-1],
        3: photo[::-1, ::-1],
        4: photo[::-1],
        5: photo.transpose(1, 0, 2),
        6: np.rot90(photo, -1),
        7: np.rot90(photo, 2).transpose(1, 0, 2),
        8: np.rot90(photo),
    }[orientation]
    assert turned.shape == upright.shape
    assert np.abs(turned - upright).mean() < 3


def test_a_pillow_image_is_turned_as_well(photo):
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    image = PIL.Image.open(io.BytesIO(encode(photo, "TIFF", exif=exif)))
    np.testing.assert_array_equal(read_image(image), np.rot90(photo, -1))


def test_heic_is_read_with_its_extra(photo):
    pillow_heif = pytest.importorskip("pillow_heif")
    buffer = io.BytesIO()
    pillow_heif.from_pillow(PIL.Image.fromarray(photo)).save(buffer, quality=-1, chroma=444)
    assert np.abs(read_image(buffer.getvalue()).astype(int) - photo).mean() < 3


def test_heic_without_its_extra_is_an_error_that_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(ValueError, match=r"is a HEIC photo, .* `pip install 'attention_apps\[heic\]'`"):
        read_image(b"\0\0\0\x18ftypheic" + bytes(100))


def test_an_animation_is_read_as_its_first_frame(photo):
    frames = [PIL.Image.fromarray(photo).quantize(64), PIL.Image.fromarray(255 - photo).quantize(64)]
    contents = encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(read_image(contents), np.asarray(frames[0].convert("RGB")))


def test_one_pixel():
    for image_format in ("PNG", "GIF", "BMP"):
        contents = encode(np.array([[[9, 8, 7]]], np.uint8), image_format)
        np.testing.assert_array_equal(read_image(contents), [[[9, 8, 7]]])
    np.testing.assert_array_equal(read_image(np.array([[5]], np.uint8)), [[[5, 5, 5]]])


def test_a_missing_file_a_folder_and_urls(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Image file not found: .*nothing\.jpg"):
        read_image(tmp_path / "nothing.jpg")
    with pytest.raises(ValueError, match="is a folder"):
        read_image(tmp_path)
    for url in ("https://example.org/cat.jpg", "HTTP://example.org/cat.jpg", "data:image/png;base64,AAAA"):
        with pytest.raises(ValueError, match="URLs are not supported; download"):
            read_image(url)


@pytest.mark.parametrize(
    ("image_format", "kept"),
    [("JPEG", 0.5), ("JPEG", 0.99), ("PNG", 0.5), ("WEBP", 0.5), ("TIFF", 0.5), ("GIF", 0.3)],
)
def test_a_truncated_image_is_named(photo, image_format, kept, tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (50, 60, 3), np.uint8)
    contents = encode(noise, image_format)
    path = tmp_path / "half.jpg"
    path.write_bytes(contents[: int(len(contents) * kept)])
    with pytest.raises(ValueError, match=r"half\.jpg is "):
        read_image(path)


def test_what_is_no_image_is_named(tmp_path):
    path = tmp_path / "letter.jpg"
    path.write_text("Dear all, this is not a photo.")
    with pytest.raises(ValueError, match=r"letter\.jpg is not an image"):
        read_image(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"letter\.jpg is empty"):
        read_image(path)
    with pytest.raises(ValueError, match="given as bytes is empty"):
        read_image(b"")
    for contents in (
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xe0 and then text",
        b"\x89PNG\r\n\x1a\n",
        png_header(3, 5),
    ):
        with pytest.raises(ValueError, match="truncated or damaged"):
            read_image(contents)
    with pytest.raises(ValueError, match="not an image"):
        read_image(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")


def test_a_bomb_is_refused_before_it_is_decoded(tmp_path):
    gif = bytearray(encode(np.zeros((8, 8), np.uint8), "GIF"))
    gif[6:10] = struct.pack("<HH", 20000, 20000)
    jpeg = bytearray(encode(np.zeros((8, 8), np.uint8), "JPEG"))
    start = jpeg.index(b"\xff\xc0") + 5
    jpeg[start : start + 4] = struct.pack(">HH", 20000, 20000)
    path = tmp_path / "bomb.png"
    for contents in (png_header(20000, 20000), png_header(2**32 - 1, 2**32 - 1), bytes(jpeg), bytes(gif)):
        path.write_bytes(contents)
        with pytest.raises(ValueError, match=rf"bomb\.png is too large: .* {MAX_PIXELS:,} pixels"):
            read_image(path)
    with pytest.raises(ValueError, match="Pillow image is too large"):
        read_image(PIL.Image.new("1", (10000, 8001)))
    with pytest.raises(ValueError, match="array is too large"):
        read_image(np.broadcast_to(np.uint8(0), (10000, 8001)))


def test_headers_that_lie_are_refused_before_anything_is_decoded():
    png = png_header(20000, 20000)
    entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(png), 22)
    icon = struct.pack("<HHH", 0, 1, 1) + entry + png
    webp = bytearray(encode(np.zeros((8, 8, 4), np.uint8), "WEBP", exif=b"Exif\0\0II*\0"))
    assert webp[12:16] == b"VP8X"
    webp[24:30] = (16_382).to_bytes(3, "little") * 2
    for contents in (icon, bytes(webp)):
        with pytest.raises(ValueError, match="too large"):
            read_image(contents)
    webp[24:30] = (8000).to_bytes(3, "little") * 2
    with pytest.raises(ValueError, match="truncated or damaged|not an image"):
        read_image(bytes(webp))


def test_devices_pipes_and_endless_files_are_refused(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.jpg")
    for path in ("/dev/zero", "/dev/null", tmp_path / "pipe.jpg"):
        with pytest.raises(ValueError, match="is a device or a pipe, not an image file"):
            read_image(path)
    monkeypatch.setattr(image_module, "MAX_FILE_BYTES", 1000)
    (tmp_path / "long.jpg").write_bytes(bytes(1001))
    with pytest.raises(ValueError, match=r"long\.jpg is too large: .* 1,000 bytes"):
        read_image(tmp_path / "long.jpg")


def test_formats_that_are_not_of_photos_are_not_read(photo):
    """They hold other images (ICNS), unpack or allocate without limit (FITS, JPEG 2000) or are read in Python."""
    icon = encode(PIL.Image.fromarray(photo).resize((16, 16)), "ICNS")
    cards = ("SIMPLE  =  T", "BITPIX  =  8", "NAXIS   =  2", "NAXIS1  =  2", "NAXIS2  =  3", "END")
    fits = b"".join(f"{card:80}".encode() for card in cards).ljust(2880) + bytes(2880)
    qoi = b"qoif" + struct.pack(">IIBB", 2, 3, 3, 0) + b"\xc5" + bytes(7) + b"\1"
    for contents in (icon, fits, qoi, encode(photo, "PPM"), encode(photo, "JPEG2000")):
        assert PIL.Image.open(io.BytesIO(contents)).size
        with pytest.raises(ValueError, match="not an image, or has an unknown format"):
            read_image(contents)


def test_a_png_that_does_not_begin_with_its_size_is_refused():
    small = struct.pack(">IIBBBBB", 10, 10, 8, 2, 0, 0, 0)
    contents = b"\x89PNG\r\n\x1a\n" + png_chunk(b"vpAg", small) + png_header(20_000, 20_000)[8:]
    with pytest.raises(ValueError, match="truncated or damaged"):
        read_image(contents)
    _, status = tf.function(lambda one: decode_in_graph(one, 8))(tf.constant([contents]))
    assert status.numpy().tolist() == [ImageStatus.BROKEN]


def tiff(entries, data=b""):
    """A little-endian TIFF; the entries are lists of numbers by tag, and the data follow them."""
    start = 8 + 2 + 12 * len(entries) + 4
    directory, extra = b"", b""
    for tag, values in sorted(entries.items()):
        packed = struct.pack(f"<{len(values)}I", *values)
        place = packed if len(values) == 1 else struct.pack("<I", start + len(extra))
        extra += b"" if len(values) == 1 else packed
        directory += struct.pack("<HHI", tag, 4, len(values)) + place
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + directory + bytes(4) + extra + data


WHOLE = {256: [100], 257: [200], 258: [8], 259: [1], 262: [1], 277: [1]}


def test_strips_and_tiles_that_cover_more_than_the_image_are_refused():
    """4,000 strips of 46 kB took ten seconds, a tile of 2 MB took 2 GB."""
    good = tiff({**WHOLE, 278: [100], 273: [138, 138 + 10_000], 279: [10_000] * 2}, bytes(20_000))
    assert read_image(good).shape == (200, 100, 3)
    strips = {**WHOLE, 278: [100], 273: [8 + number for number in range(4_000)], 279: [10_000] * 4_000}
    packed = {**WHOLE, 259: [8], 322: [46_000], 323: [46_000], 324: [8], 325: [50]}
    start = time.process_time()
    for contents in (tiff(strips, bytes(20_000)), tiff(packed, bytes(50))):
        with pytest.raises(ValueError, match="truncated or damaged"):
            read_image(contents)
    assert time.process_time() - start < 5


def test_what_pillow_decodes_in_python_is_refused():
    header = struct.pack("<IiiHHIIiiII", 40, 1000, 1000, 1, 8, 1, 0, 0, 0, 256, 0)  # compression 1: run lengths
    contents = b"BM" + struct.pack("<IHHI", 14 + 40 + 1024 + 9, 0, 0, 14 + 40 + 1024) + header + bytes(1024 + 9)
    with pytest.raises(ValueError, match="uncommon encoding, which is too slow to decode"):
        read_image(contents)


def tags(count, size):
    """Tags that all point to the same bytes."""
    entries = b"".join(struct.pack("<HHII", number, 7, size, 8) for number in range(1000, 1000 + count))
    return b"II*\0" + struct.pack("<I", 8 + size) + b"x" * size + struct.pack("<H", count) + entries + bytes(4)


def test_tags_that_share_their_bytes_are_refused_before_they_are_copied(photo):
    """A file of 900 kB would take 6 GB."""
    bomb = tags(60_000, 100_000)
    start = time.process_time()
    for contents in (bomb, encode(photo, "WEBP", exif=b"Exif\0\0" + bomb)):
        with pytest.raises(ValueError, match="truncated or damaged"):
            read_image(contents)
    assert time.process_time() - start < 5
    np.testing.assert_array_equal(read_image(encode(photo, "WEBP", lossless=True, exif=tags(3, 20_000))), photo)


def test_a_gif_with_comments_without_end_is_refused(photo):
    """Pillow joins them in quadratic time."""
    gif = encode(PIL.Image.fromarray(photo).quantize(16), "GIF")
    start = time.process_time()
    with pytest.raises(ValueError, match="truncated or damaged"):
        read_image(gif[:10] + b"\0" + gif[11:13] + b"!\xfe\1a\0" * 2_000_000 + gif[13:])
    assert time.process_time() - start < 5


@pytest.mark.parametrize("shape", [(3,), (2, 2, 5), (2, 2, 0), (0, 3, 3), (1, 2, 2, 3)])
def test_arrays_of_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="Received: shape="):
        read_image(np.zeros(shape, np.uint8))


@pytest.mark.parametrize("value", [-1.0, 256.0, np.nan, np.inf, 1j])
def test_arrays_of_other_numbers_are_refused(value):
    with pytest.raises(ValueError, match="must hold numbers from 0 to 255"):
        read_image(np.full((2, 3), value))
