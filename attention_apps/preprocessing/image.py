"""Read photos from files, bytes, Pillow images and arrays as RGB pixels."""

import io
import math
import os
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import PIL.ExifTags
import PIL.Image
import PIL.ImageOps
import tensorflow as tf

from attention_apps.preprocessing.image_formats import MAX_COMPRESSED_TEXTS, MAX_SCANS
from attention_apps.preprocessing.image_graph import (
    JPEG_MAGIC,
    MAX_PIXELS,
    PNG_MAGIC,
    ImageStatus,
    decode_image,
    to_rgb,
)
from attention_apps.preprocessing.image_header import gif_frame, image_cost, tag_bytes

# A file of MAX_PIXELS with four channels of 16 bits fits.
MAX_FILE_BYTES = 1 << 30
_TOO_LARGE = f"too large: it has more than the limit of {MAX_PIXELS:,} pixels"
_LIMITS = f"{MAX_SCANS} JPEG scans or {MAX_COMPRESSED_TEXTS} compressed texts"
_TOO_SLOW = f"too slow to decode: it has more than the limit of {_LIMITS}"
# Of Pillow's formats, those of photos. Of the others, EPS is a program, some embed an image of another format, some
# unpack without limit (FITS), one allocates without limit (JPEG 2000, for tiles and components), and some are read in
# Python, a byte or a pixel at a time (QOI, PPM).
_FORMATS = ("AVIF", "BMP", "DIB", "GIF", "HEIF", "ICO", "PCX", "TGA", "TIFF", "WEBP")
# The tags of a TIFF with the sides of its tiles.
_TILE_SIDES = (322, 323)
# Pillow's images are converted in blocks of rows, of about so many pixels.
_BLOCK_PIXELS = 1 << 22
# Smaller EXIF data and TIFF files may claim as much.
_MAX_TAG_BYTES = 1 << 20
# The brands of HEIC files; AVIF files, which Pillow reads by itself, have others.
_HEIF_MAGIC = tuple(b"ftyp" + brand for brand in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1"))
_DAMAGED = "a truncated or damaged image"
_decode = tf.function(decode_image, input_signature=[tf.TensorSpec((), tf.string)], autograph=False)
_URL = re.compile(r"[a-z][a-z0-9+.-]+://|data:", re.IGNORECASE)


def read_image(image: str | os.PathLike | bytes | PIL.Image.Image | npt.ArrayLike) -> np.ndarray:
    """Read a photo as RGB pixels, rotated by its EXIF orientation, with transparent parts on white.

    JPEG and PNG files are decoded by the same TensorFlow code as in an exported model, so both see the same pixels.
    Pillow decodes every other format.

    Args:
        image: a path; the bytes of a file; a Pillow image; or an array `(height, width)` or `(height, width,
            1 to 4)` of uint8, uint16, bool, other numbers from 0 to 255, or floats from 0 to 1. Only the first frame
            of an animation is read. Pillow's mode "I" is read as 16 bits, or as 8 if no value is above 255.

    Returns:
        `(height, width, 3)`, uint8.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: not an image, damaged, or above a limit (`MAX_PIXELS`, `MAX_SCANS`, `MAX_FILE_BYTES`). The message
            names the file.
    """
    if isinstance(image, (str, os.PathLike)):
        return _read_bytes(_read_file(image), str(image))
    if isinstance(image, (bytes, bytearray, memoryview)):
        return _read_bytes(bytes(image), "The image given as bytes")
    if isinstance(image, PIL.Image.Image):
        return _from_pillow(image, getattr(image, "filename", "") or "The Pillow image")
    return _from_array(np.asarray(image))


def _read_file(path) -> bytes:
    if _URL.match(str(path)):
        raise ValueError(f"URLs are not supported; download the image and pass its path or bytes. Received: {path}")
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"Image file not found: {path}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not an image file")
    if not path.is_file():  # a device or a pipe may have no end
        raise ValueError(f"{path} is a device or a pipe, not an image file")
    with path.open("rb") as file:
        contents = file.read(MAX_FILE_BYTES + 1)
    if len(contents) > MAX_FILE_BYTES:
        raise ValueError(f"{path} is too large: it has more than the limit of {MAX_FILE_BYTES:,} bytes")
    return contents


def _read_bytes(contents: bytes, name: str) -> np.ndarray:
    if not contents:
        raise ValueError(f"{name} is empty: it has no bytes")
    if image_cost(contents) > MAX_PIXELS:
        raise ValueError(f"{name} is {_TOO_LARGE}")
    if contents.startswith((JPEG_MAGIC, PNG_MAGIC)):
        return _decode_jpeg_or_png(contents, name)
    if contents[4:12] in _HEIF_MAGIC:
        _register_heif(name)
    if contents.startswith(b"GIF8") and gif_frame(contents) is None:  # Pillow would need hours for its blocks
        raise ValueError(f"{name} is {_DAMAGED}")
    _check_tags(contents, name)
    try:
        PIL.Image.init()
        image = PIL.Image.open(io.BytesIO(contents), formats=[name for name in _FORMATS if name in PIL.Image.OPEN])
    except PIL.UnidentifiedImageError as error:
        raise ValueError(f"{name} is not an image, or has an unknown format") from error
    except PIL.Image.DecompressionBombError as error:
        raise ValueError(f"{name} is {_TOO_LARGE}") from error
    except Exception as error:  # Pillow's readers raise nearly anything on a damaged file
        raise ValueError(f"{name} is {_DAMAGED} ({error})") from error
    _check_tiles(image, name)
    return _from_pillow(image, name)


def _register_heif(name: str) -> None:
    """Register HEIC, the photo format of iPhones, with Pillow. The package for it is in a separate extra."""
    try:
        import pillow_heif
    except ImportError:
        raise ValueError(
            f"{name} is a HEIC photo, which needs the package pillow-heif: `pip install 'attention_apps[heic]'`"
        ) from None
    pillow_heif.register_heif_opener()


def _decode_jpeg_or_png(contents: bytes, name: str) -> np.ndarray:
    try:
        image, status = _decode(tf.constant(contents))
    except (tf.errors.OpError, UnicodeDecodeError) as error:  # UnicodeDecodeError if the error message quotes the bytes
        raise ValueError(f"{name} is {_DAMAGED}") from error
    if status == ImageStatus.TOO_LARGE:  # the pixels were checked before
        raise ValueError(f"{name} is {_TOO_SLOW}")
    return image.numpy()


def _from_pillow(image: PIL.Image.Image, name: str) -> np.ndarray:
    if image.width * image.height > MAX_PIXELS:
        raise ValueError(f"{name} is {_TOO_LARGE}")
    exif = image.info.get("exif")
    if isinstance(exif, bytes):
        _check_tags(exif.removeprefix(b"Exif\0\0"), name)
    try:
        if image.getexif().get(PIL.ExifTags.Base.Orientation, 1) != 1:
            image = PIL.ImageOps.exif_transpose(image)  # else it would copy the image
        pixels = _pillow_pixels(image)
    except Exception as error:  # as above
        raise ValueError(f"{name} is {_DAMAGED} ({error})") from error
    return _from_array(pixels, name)


def _check_tiles(image: PIL.Image.Image, name: str) -> None:
    """Refuse what Pillow decodes in Python, a pixel at a time, and strips or tiles that cover more than the image."""
    tiles = getattr(image, "tile", [])
    if any(tile[0] in PIL.Image.DECODERS for tile in tiles):
        raise ValueError(f"{name} has an uncommon encoding, which is too slow to decode")
    covered = sum((right - left) * (bottom - top) for _, (left, top, right, bottom), *_ in tiles)
    tags = getattr(image, "tag_v2", {})
    tile_pixels = math.prod(tags.get(side, 0) for side in _TILE_SIDES)
    if covered > image.width * image.height * len(image.getbands()) or tile_pixels > MAX_PIXELS:
        raise ValueError(f"{name} is {_DAMAGED}")


def _check_tags(block: bytes, name: str) -> None:
    """Refuse a TIFF or EXIF block whose tags all point to the same bytes: Pillow would copy these for each of them."""
    if tag_bytes(block) > max(len(block), _MAX_TAG_BYTES):
        raise ValueError(f"{name} is {_DAMAGED}")


def _pillow_pixels(image: PIL.Image.Image) -> np.ndarray:
    if image.mode == "F":
        return np.asarray(image)
    if image.mode.startswith("I"):  # "I;16" has 16 bits; "I" holds 8 or 16
        pixels = np.asarray(image)
        is_deep = image.mode != "I" or pixels.max(initial=0) > 255
        return np.clip(pixels, 0, 65535).astype(np.uint16 if is_deep else np.uint8)
    mode = "RGBA" if image.has_transparency_data else "RGB"
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    rows = max(_BLOCK_PIXELS // image.width, 1)
    for top in range(0, image.height, rows):
        block = image.crop((0, top, image.width, min(top + rows, image.height)))
        if block.mode == "La":  # Pillow converts "La" to "LA" only
            block = block.convert("LA")
        pixels[top : top + rows] = to_rgb(tf.constant(np.asarray(block.convert(mode))))
    return pixels


def _from_array(array: np.ndarray, name: str = "The image array") -> np.ndarray:
    array = array[..., np.newaxis] if array.ndim == 2 else array
    if array.ndim != 3 or not 1 <= array.shape[-1] <= 4 or 0 in array.shape:
        shape = tuple(array.shape)
        raise ValueError(f"{name} must be (height, width) or (height, width, 1 to 4). Received: shape={shape}")
    if array.shape[0] * array.shape[1] > MAX_PIXELS:
        raise ValueError(f"{name} is {_TOO_LARGE}")
    array = _to_uint8(array, name)
    return array if array.shape[-1] == 3 else to_rgb(tf.constant(array)).numpy()


def _to_uint8(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.uint16:
        return (array >> 8).astype(np.uint8)
    if array.dtype == bool:
        return array.astype(np.uint8) * 255
    if array.dtype.kind not in "iuf" or not (array.min() >= 0 and array.max() <= 255):
        values = f" from {array.min()} to {array.max()}" if array.dtype.kind in "iuf" else ""
        raise ValueError(f"{name} must hold numbers from 0 to 255, or from 0 to 1. Received: {array.dtype}{values}")
    is_unit = array.dtype.kind == "f" and array.max() <= 1
    return np.rint(array * 255 if is_unit else array).astype(np.uint8)
