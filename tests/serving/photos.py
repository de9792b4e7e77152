"""Image files for exported captioners."""

import io

import numpy as np
from PIL import Image


def encode(shape, image_format, seed=0, **options):
    """The bytes of a file of colored stripes."""
    random = np.random.default_rng(seed)
    pixels = np.repeat(random.integers(0, 256, (1, *shape[1:]), np.uint8), shape[0], axis=0)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, image_format, **options)
    return buffer.getvalue()


GOOD = {
    "jpeg": encode((40, 60, 3), "JPEG", 1, quality=95),
    "png": encode((71, 33, 3), "PNG", 2),
    "gray png": encode((20, 90), "PNG", 3),
    "gif": encode((50, 50), "GIF", 4),
    "bmp": encode((33, 44, 3), "BMP", 5),
    "large jpeg": encode((300, 500, 3), "JPEG", 6),
}
BAD = {
    "empty": (b"", "undecodable image"),
    "truncated": (GOOD["jpeg"][:400], "undecodable image"),
    "text": (b"not a photo", "unsupported image format"),
    "webp": (encode((9, 9, 3), "WEBP"), "unsupported image format"),
    "bomb": (GOOD["png"][:16] + b"\x00\x01\x00\x00" * 2 + GOOD["png"][24:], "image too large"),
}
