"""A tiny untrained captioner, photos for it, and files that are not photos."""

import csv
import io
import struct
import zlib

import keras
import numpy as np
from PIL import Image

from attention_apps.applications import CaptionerConfig, ImageCaptioner, ImageEncoderConfig
from attention_apps.decoding import DecodingOptions
from attention_apps.models.decoder_config import AttentionConfig, DecoderConfig
from attention_apps.preprocessing.vocabulary import Vocabulary

WORDS = ["a", "dog", "cat", "runs", "on", "grass"]
PHOTO = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)


def make_config(encoder=None, **decoder):
    return CaptionerConfig(
        encoder=ImageEncoderConfig("efficientnet_lite0", image_size=64, units=10, **(encoder or {})),
        decoder=DecoderConfig(embedding_dim=8, units=12, **decoder),
        decoding=DecodingOptions(beam_size=3, num_best=2, max_length=5, min_length=3, banned_tokens=(0, 1, 3)),
    )


def make_captioner():
    keras.utils.set_random_seed(0)
    config = make_config(attention=AttentionConfig(units=6), context_gate="scalar", deep_output=True)
    return ImageCaptioner(config, Vocabulary(WORDS))


def as_bytes(image_format, array=PHOTO, **options):
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, image_format, **options)
    return buffer.getvalue()


def bad_photos():
    """Contents that are not a photo and the reason, by file name."""
    header = b"IHDR" + struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return {
        "truncated.jpg": (as_bytes("JPEG")[:-200], "truncated or damaged"),
        "empty.jpg": (b"", "is empty: it has no bytes"),
        "text.jpg": (b"Dear all, this is not a photo.", "is not an image"),
        "bomb.png": (bomb, "is too large: it has more than the limit of"),
    }


def odd_photos():
    """Contents of unusual photos, by file name."""
    second = Image.fromarray(255 - PHOTO)
    return {
        "one_pixel.png": as_bytes("PNG", PHOTO[:1, :1]),
        "animated.gif": as_bytes("GIF", save_all=True, append_images=[second]),
    }


def write_manifest(folder, rows, header=("image", "caption")):
    """A manifest `photos.csv` beside the photo `photo.png`."""
    (folder / "photo.png").write_bytes(as_bytes("PNG"))
    with (folder / "photos.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return folder / "photos.csv"


def bound_examples(captioner, manifest, cache, training=True):
    """The examples of a manifest, ready for the captioner's model."""
    examples = captioner.parts.examples(list(captioner.manifest(manifest).rows()), captioner.config)
    examples.bind(captioner.codec, captioner.model, cache, training=training, quiet=True)
    return examples
