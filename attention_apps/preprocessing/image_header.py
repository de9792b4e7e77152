"""Read the size of an image from its header, without decoding and without importing an imaging library."""

import re
import struct
import sys

_JPEG_MARKER = re.compile(rb"\xff([\x01-\xcf\xd8-\xfe])")
_JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_SCAN, _JPEG_END = 0xDA, 0xD9
_MAX_SEGMENTS = 100_000  # of a JPEG before its size
_MAX_BLOCKS = 20_000  # of a GIF before its first frame
_MAX_ICONS = 256
LARGEST_JPEG = 65_535**2


def image_cost(data: bytes) -> int:
    """Return the number of pixels to decode for a file, from its header, or 0 if unknown.

    Supports JPEG, PNG, GIF (the first frame, or the screen if larger), BMP, WebP and ICO (the largest icon). Never
    raises: a damaged or truncated header gives 0 or the number that it states, and a JPEG with far too many segments
    before its size, or an ICO with far too many icons, gives `LARGEST_JPEG`.

    Example:

        image_cost(b"\\x89PNG\\r\\n\\x1a\\n\\0\\0\\0\\rIHDR" + (640).to_bytes(4) + (480).to_bytes(4))   # 307200
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
    for _ in range(_MAX_SEGMENTS):
        found = _JPEG_MARKER.search(data, position)
        if not found:
            return 0
        code, position = found[1][0], found.end()
        if code in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", data, position + 3)
            return height * width
        if code in (_JPEG_SCAN, _JPEG_END):
            return 0
        if code >= 0xC0 and code != 0xD8:
            position += max(struct.unpack_from(">H", data, position)[0], 2)
    return LARGEST_JPEG


def _png(data: bytes, start: int = 0) -> int:
    if data[start + 12 : start + 16] != b"IHDR":  # decoders skip unknown chunks before it, and we refuse them
        return 0
    width, height = struct.unpack_from(">II", data, start + 16)
    return width * height


def _gif(data: bytes) -> int:
    width, height = struct.unpack_from("<HH", data, 6)
    position = gif_frame(data)
    if not position or data[position] != 0x2C:
        return width * height
    frame_width, frame_height = struct.unpack_from("<HH", data, position + 5)
    return max(width, frame_width) * max(height, frame_height)


def gif_frame(data: bytes) -> int | None:
    """Return where the first frame of a GIF begins; 0 if the file ends before it, or `None` after too many blocks."""
    try:
        position = 13 + (3 * (2 << data[10] % 8) if data[10] >= 128 else 0)  # after the color table
        is_inside = False  # an extension, which is a list of blocks that ends with an empty one
        for _ in range(_MAX_BLOCKS):
            if is_inside:
                is_inside = data[position] > 0
                position += 1 + data[position]
            elif data[position] != 0x21:
                return position
            else:
                is_inside = True
                position += 2
    except IndexError:
        return 0
    return None


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
    count = struct.unpack_from("<H", data, 4)[0]
    if count > _MAX_ICONS:
        return LARGEST_JPEG
    sizes = [0]
    for entry in range(count):
        start = struct.unpack_from("<I", data, 6 + 16 * entry + 12)[0]
        if start + 24 <= len(data):
            sizes.append(_png(data, start) if data.startswith(b"\x89PNG", start) else _bmp(data, start))
    return max(sizes)


# The bytes of a value of each type of a TIFF tag, and the tags that point to further tags: of EXIF, GPS and others.
_TIFF_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_TIFF_FOLDERS = frozenset({0x8769, 0x8825, 0xA005})
_MAX_TIFF_FOLDERS = 16


def tag_bytes(data: bytes) -> int:
    """Return how many bytes the tags of a TIFF file, or of an EXIF block, claim to have, with those of EXIF and GPS.

    It is 0 if the data are something else. In a good file no two tags share their bytes, so that it is less than the
    length of the file.
    """
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    if order is None:
        return 0
    is_big = struct.unpack_from(f"{order}H", data.ljust(4, b"\0"), 2)[0] == 43
    start, count_format, entry = (8, "Q", f"{order}HHQQ") if is_big else (4, "H", f"{order}HHII")
    inline = 8 if is_big else 4
    total, seen = 0, set()
    waiting = [_unpack(f"{order}{'Q' if is_big else 'I'}", data, start)]
    while waiting:
        folder = waiting.pop()
        if folder in seen or not 0 < folder < len(data):
            continue
        seen.add(folder)
        if len(seen) > _MAX_TIFF_FOLDERS:
            return sys.maxsize
        first = folder + struct.calcsize(f"{order}{count_format}")
        size = struct.calcsize(entry)
        count = min(_unpack(f"{order}{count_format}", data, folder), max(len(data) - first, 0) // size)
        for tag, kind, values, value in struct.iter_unpack(entry, data[first : first + count * size]):
            claimed = values * _TIFF_SIZES.get(kind, 1)
            total += claimed if claimed > inline else 0
            if tag in _TIFF_FOLDERS:
                waiting.append(value)
    return total


def _unpack(number_format: str, data: bytes, start: int) -> int:
    """Return a number, or 0 if the data end before it."""
    end = start + struct.calcsize(number_format)
    return struct.unpack_from(number_format, data, start)[0] if end <= len(data) else 0


_FORMATS = (
    (re.compile(rb"\xff\xd8\xff"), _jpeg),
    (re.compile(rb"\x89PNG\r\n\x1a\n"), _png),
    (re.compile(rb"GIF8"), _gif),
    (re.compile(rb"BM"), _bmp),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), _webp),
    (re.compile(rb"\0\0[\1\2]\0"), _ico),
)
