"""Converts captions to tokens, and model outputs to a `Caption`."""

import math
from collections.abc import Mapping

import tensorflow as tf

from attention_apps.applications.captioning.caption import Caption
from attention_apps.applications.captioning.reader import STATUSES
from attention_apps.applications.outputs import answer_fields, calibrated, token_probabilities
from attention_apps.applications.parts import AnsweredParts, Codec, OutputOptions, Reading, Tensors
from attention_apps.constants import END
from attention_apps.decoding import DecodingResult
from attention_apps.preprocessing.text import join_captions


class CaptionCodec(Codec):
    """Writes captions in lowercase words of a vocabulary, without punctuation."""

    result = Caption
    output_notes: Mapping[str, str] = {
        "text": "captions, best first",
        "score": "the ranking score of each; higher is better",
        "confidence": "the confidence of the best caption, from 0 to 1",
        "unsure": "whether the confidence is below the threshold of the preset",
        "token_ids": "token ids of the best caption, then the end token 2, then 0",
        "tokens": "words of the best caption, then empty strings",
        "attention": "for each of these words, how much each region of the image was looked at: rows and columns",
        "status": ", ".join(f"`{status}`" for status in STATUSES.values()),
    }

    def texts(self, token_ids: tf.Tensor, source: Tensors) -> tf.Tensor:
        words = self.vocabulary.strings(token_ids)
        shape = tf.shape(words)
        return tf.reshape(join_captions(tf.reshape(words, [-1, shape[-1]])), shape[:2])

    def outputs(self, source: Tensors, memory: Tensors, result: DecodingResult, forced: Tensors) -> Tensors:
        token_ids, attention = forced["token_ids"], forced["attention"]
        side = math.isqrt(attention.shape[-1])
        weights = tf.where((token_ids > END)[..., tf.newaxis], attention, 0.0)
        return {
            "text": self.texts(result.token_ids, source),
            "score": result.scores,
            **calibrated(token_probabilities(forced), token_ids > 0, self.config.confidence),
            "token_ids": token_ids,
            "tokens": self.vocabulary.strings(token_ids),
            "attention": tf.reshape(weights, [*tf.unstack(tf.shape(token_ids)), side, side]),
        }

    def join(self, reading: Reading, parts: AnsweredParts, options: OutputOptions) -> Caption:
        ((_, outputs),) = parts
        assert outputs is not None  # every photo is answered
        return Caption(
            outputs["text"][0].decode(),
            **answer_fields(outputs),
            unsure=bool(outputs["unsure"]),
            source=reading.item,
            pixels=reading.shown,
        )
