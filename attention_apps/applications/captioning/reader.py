"""Reads photos as the pixels that the model sees."""

from typing import Any

import numpy as np
import PIL.Image
import tensorflow as tf

from attention_apps.applications.captioning.config import CaptionerConfig
from attention_apps.applications.parts import OutputOptions, RawInput, Reading, Source, Tensors
from attention_apps.preprocessing.image import read_image
from attention_apps.preprocessing.image_graph import MAX_PIXELS, ImageStatus, decode_in_graph, resize_image
from attention_apps.serving import DEFAULT_SIGNATURE

STATUSES = {
    ImageStatus.DECODED: "ok",
    ImageStatus.BROKEN: "undecodable image",
    ImageStatus.UNSUPPORTED: "unsupported image format",
    ImageStatus.TOO_LARGE: "image too large",
}
_MAX_SHOWN_SIDE = 1024
_NOTE = (
    "the bytes of image files of any size: JPEG and PNG, turned as their EXIF data says; the first frame of a GIF "
    f"and BMP of 24 or 32 bits, without transparency; at most {MAX_PIXELS:,} pixels each"
)


class ImageReader:
    """Reads photos: paths, bytes, PIL images and arrays, or in a graph the bytes of files."""

    max_batch_length = 32.0

    def __init__(self, config: CaptionerConfig):
        self.size, self.fit = config.encoder.image_size, config.encoder.fit
        self.signature = {"image": tf.TensorSpec((None, self.size, self.size, 3), tf.uint8)}

    def read(self, item: Any, options: OutputOptions) -> Reading:
        pixels = read_image(item)
        square = resize_image(tf.constant(pixels), self.size, self.fit).numpy()
        # The caption's plots show the photo reduced in size, and cropped to what the model sees.
        if self.fit == "crop":
            side = min(pixels.shape[:2])
            top, left = ((length - side) // 2 for length in pixels.shape[:2])
            pixels = pixels[top : top + side, left : left + side]
        image = PIL.Image.fromarray(pixels)
        # A photo of at least twice the size is first averaged in blocks, which takes a third of the time.
        image.thumbnail((_MAX_SHOWN_SIDE, _MAX_SHOWN_SIDE), reducing_gap=1.0)
        return Reading([Source({"image": square})], item, np.asarray(image))

    def in_graph(self, image_bytes: tf.Tensor) -> tuple[Tensors, Tensors]:
        images, status = decode_in_graph(image_bytes, self.size, self.fit)
        return {"image": images}, {"status": tf.gather(list(STATUSES.values()), status)}

    def raw_inputs(self) -> dict[str, RawInput]:
        example = tf.io.encode_jpeg(tf.zeros((32, 32, 3), tf.uint8)).numpy()
        specs = {"image_bytes": tf.TensorSpec([None], tf.string)}
        return {DEFAULT_SIGNATURE: RawInput(self.in_graph, specs, {"image_bytes": [example]}, {"image_bytes": _NOTE})}
