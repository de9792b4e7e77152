"""Captions from the bytes of files to strings in one graph of core TensorFlow ops: what an export holds."""

from typing import Any

import tensorflow as tf

from attention_apps.decoding import DecodingOptions
from attention_apps.models.tokens import END
from attention_apps.preprocessing import captions
from attention_apps.preprocessing.image_graph import MAX_PIXELS, ImageStatus, decode_in_graph
from attention_apps.serving.signature import DEFAULT_SIGNATURE, Signature

STATUSES = {
    ImageStatus.DECODED: "ok",
    ImageStatus.BROKEN: "undecodable image",
    ImageStatus.UNSUPPORTED: "unsupported image format",
    ImageStatus.TOO_LARGE: "image too large",
}
_INPUT_NOTES = {
    "image_bytes": (
        "the bytes of image files of any size: JPEG and PNG, turned as their EXIF data says; the first frame of a GIF "
        f"and BMP of 24 or 32 bits, without transparency; at most {MAX_PIXELS:,} pixels each"
    )
}
_OUTPUT_NOTES = {
    "text": "captions, best first",
    "score": "what the captions are ranked by; more is better",
    "token_ids": "the best caption's words by their numbers, the end token 2 after them, then 0",
    "tokens": "the best caption's words, then empty strings",
    "attention": "for each of these words, how much each region of the image was looked at, rows and columns",
    "status": ", ".join(f"`{status}`" for status in STATUSES.values()),
}


class CaptionGraph:
    """Graph code that captions a batch of image files as `ImageCaptioner.caption` does.

    Args:
        captioner: a trained `ImageCaptioner`.
        options: of the search.

    Call arguments:
        image_bytes: strings `(batch,)`.

    Returns:
        A dict: `text` and `score` `(batch, num_best)`, best first; of the best, `token_ids` and `tokens`
        `(batch, target)` and `attention` `(batch, target, rows, columns)`; `status` `(batch,)`, one of `STATUSES`.
    """

    def __init__(self, captioner: Any, options: DecodingOptions):
        self.captioner = captioner
        self.options = options

    def __call__(self, image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        config = self.captioner.config.encoder
        images, status = decode_in_graph(image_bytes, config.image_size, config.fit)
        is_good = status == ImageStatus.DECODED
        source = {"features": self.captioner.model.encoder.extract(images)}
        result = self.captioner._search_in_graph(source, self.options)
        token_ids = tf.where(is_good[:, tf.newaxis, tf.newaxis], result.token_ids, 0)
        best = token_ids[:, 0, : tf.maximum(tf.reduce_max(result.lengths[:, 0]), 1)]
        words = tf.gather(self._words(), token_ids)
        return {
            "text": _join(words),
            "score": tf.where(is_good[:, tf.newaxis], result.scores, float("-inf")),
            "token_ids": best,
            "tokens": words[:, 0, : tf.shape(best)[1]],
            "attention": self._attention(source, best),
            "status": tf.gather(list(STATUSES.values()), status),
        }

    def signatures(self) -> dict[str, Signature]:
        """How the export is called."""
        example = tf.io.encode_jpeg(tf.zeros((32, 32, 3), tf.uint8)).numpy()
        spec = tf.TensorSpec([None], tf.string)
        signature = Signature(self, {"image_bytes": spec}, {"image_bytes": [example]}, _INPUT_NOTES, _OUTPUT_NOTES)
        return {DEFAULT_SIGNATURE: signature}

    def _words(self):
        """All words by number, empty strings for padding, start and end."""
        return tf.constant(
            ["" if index <= END else word for index, word in enumerate(self.captioner.vocabulary.tokens)]
        )

    def _attention(self, source, token_ids):
        weights = tf.where((token_ids > END)[..., tf.newaxis], self.captioner._attend(source, token_ids), 0.0)
        return tf.reshape(weights, [*tf.unstack(tf.shape(token_ids)), *self.captioner.model.encoder.grid_shape])


def _join(words):
    """The texts of words `(batch, num_best, target)`."""
    shape = tf.shape(words)
    return tf.reshape(captions.detokenize(tf.reshape(words, [-1, shape[-1]])), shape[:2])
