"""Read the size of an image from its header, without decoding and without importing an imaging library."""

import re
import struct

_JPEG_MARKER = re.compile(rb"\xff([\x01-\xcf\xd8-\xfe])")
_JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_SCAN, _JPEG_END = 0xDA, 0xD9
_MAX_BLOCKS = 20_000  # of a GIF before its first frame
_MAX_ICONS = 256


def image_cost(data: bytes) -> int:
    """Return the number of pixels to decode for a file, from its header, or 0 if unknown.

    Supports JPEG, PNG, GIF (the first frame, or the screen if larger), BMP, WebP and ICO (the largest icon). Never
    raises: a damaged or truncated header gives 0 or the number that it states.

    Example:

        image_cost(b"\\x89PNG\\r\\n\\x1a\\n" + bytes(8) + (640).to_bytes(4) + (480).to_bytes(4))   # 307200
    """
    for magic, pixels in _FORMATS:
        if magic.match(data):
            try:
                return pixels(data)
            except (struct.error, IndexError):  # the file ends within its header
                return 0
    return 0


def _jpeg(data: bytes) -> int:
    position = 2
    while found := _JPEG_MARKER.search(data, position):
        code, position = found[1][0], found.end()
        if code in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", data, position + 3)
            return height * width
        if code in (_JPEG_SCAN, _JPEG_END):
            return 0
        if code >= 0xC0 and code != 0xD8:
            position += max(struct.unpack_from(">H", data, position)[0], 2)
    return 0


def _png(data: bytes, start: int = 0) -> int:
    width, height = struct.unpack_from(">II", data, start + 16)
    return width * height


def _gif(data: bytes) -> int:
    width, height = struct.unpack_from("<HH", data, 6)
    position = 13 + (3 * (2 << data[10] % 8) if data[10] >= 128 else 0)  # after the color table
    for _ in range(_MAX_BLOCKS):
        if data[position] != 0x21:
            break
        position += 2
        while data[position]:
            position += 1 + data[position]
        position += 1
    if data[position] != 0x2C:
        return width * height
    frame_width, frame_height = struct.unpack_from("<HH", data, position + 5)
    return max(width * height, frame_width * frame_height)


def _bmp(data: bytes, start: int = 14) -> int:
    if struct.unpack_from("<I", data, start)[0] == 12:  # the oldest header version
        width, height = struct.unpack_from("<HH", data, start + 4)
    else:
        width, height = struct.unpack_from("<ii", data, start + 4)
    return abs(width * height)  # a negative height means that the top row comes first


def _webp(data: bytes) -> int:
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = (1 + int.from_bytes(data[start : start + 3], "little") for start in (24, 27))
    elif kind == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    elif kind == b"VP8 ":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    else:
        return 0
    return width * height


def _ico(data: bytes) -> int:
    """Read the size from the image that each entry points to, because the directory of icons may be wrong."""
    count = min(struct.unpack_from("<H", data, 4)[0], _MAX_ICONS)
    sizes = [0]
    for entry in range(count):
        start = struct.unpack_from("<I", data, 6 + 16 * entry + 12)[0]
        if start + 24 <= len(data):
            sizes.append(_png(data, start) if data.startswith(b"\x89PNG", start) else _bmp(data, start))
    return max(sizes)


_FORMATS = (
    (re.compile(rb"\xff\xd8\xff"), _jpeg),
    (re.compile(rb"\x89PNG\r\n\x1a\n"), _png),
    (re.compile(rb"GIF8"), _gif),
    (re.compile(rb"BM"), _bmp),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), _webp),
    (re.compile(rb"\0\0[\1\2]\0"), _ico),
)
