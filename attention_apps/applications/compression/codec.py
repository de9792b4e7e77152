"""Convert tags to compressions: the kept words of each sentence, spelled as the user typed them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from attention_apps.applications.compression.compression import Compression
from attention_apps.applications.compression.config import CompressionDecodingOptions
from attention_apps.applications.outputs import calibrated, token_probabilities
from attention_apps.applications.parts import Tensors
from attention_apps.applications.summarization.codec import STATUS_NOTE, SummaryCodec
from attention_apps.applications.summarization.config import SummaryOptions
from attention_apps.constants import UNKNOWN, VERY_NEGATIVE
from attention_apps.decoding import DecodingResult
from attention_apps.decoding.scorers import Scorer
from attention_apps.models.copying import DELETE, KEEP
from attention_apps.preprocessing.sentences import (
    capitalize_first,
    join_kept,
    keep_qualifiers,
    keep_whole_numbers,
    model_form,
)
from attention_apps.preprocessing.text import JOINER
from attention_apps.preprocessing.word_forms import unknown_class_ids


class TagCodec(SummaryCodec):
    """Tags that keep or delete the words of a sentence.

    Args:
        vocabulary: the words that the model knows, in lowercase, with numbers as `##`.
    """

    output_notes: Mapping[str, str] = {
        "text": "compressions, best first",
        "score": "the ranking score of each; higher is better",
        "confidence": "the confidence of the best compression, from 0 to 1",
        "unsure": "whether the confidence is below the threshold of the preset",
        "source_tokens": "the tokens of the text, then empty strings",
        "kept": "whether each of these is in the best compression",
        "status": STATUS_NOTE,
    }

    result = Compression
    model_form = staticmethod(model_form)
    is_copied = True
    separator = " "

    def prepare(self, source: Tensors) -> Tensors:
        forms = self.model_form(source["tokens"])
        token_ids = self.model_vocabulary.lookup(forms)
        return {"token_ids": tf.where(token_ids == UNKNOWN, unknown_class_ids(forms), token_ids)}

    def search_options(self, options: CompressionDecodingOptions) -> CompressionDecodingOptions:
        """Allow as many tags as there are words, and repeated tags."""
        length = self.config.max_source_length + 1
        return replace(options, max_length=length, min_length=1, no_repeat_ngram_size=0, banned_tokens=())

    def scorers(self, memory: Tensors, options: CompressionDecodingOptions) -> Sequence[Any]:
        if not (options.keep_bias or options.min_words or options.max_words):
            return ()
        return (keep_limit(memory["mask"], options),)

    def texts(self, token_ids: tf.Tensor, source: Tensors) -> tf.Tensor:
        tokens, keep = _kept(token_ids, source["tokens"])
        return join_kept(tokens, keep)

    def outputs(self, source: Tensors, memory: Tensors, result: DecodingResult, forced: Tensors) -> Tensors:
        tokens = source["tokens"]
        written, keep = (one[:, 0] for one in _kept(result.token_ids[:, :1], tokens))
        is_word = tokens != ""
        # Only tags have a probability, not the end token.
        tags = tf.pad(token_probabilities(forced), [[0, 0], [0, tf.shape(tokens)[1]]])[:, : tf.shape(tokens)[1]]
        return {
            "text": self.texts(result.token_ids, source),
            "score": result.scores,
            **calibrated(tags, is_word, self.config.confidence),
            "tokens": tf.strings.regex_replace(tf.where(keep, written, ""), JOINER, ""),
            "kept": keep,
            "attention": tf.linalg.diag(tf.cast(keep, tf.float32)),
        }

    def serve(self, outputs: Tensors, context: Tensors, options: SummaryOptions) -> Tensors:
        """Join the compressed sentences of each text."""
        if options.sentences is not None:
            raise ValueError(f"`sentences` must be None in an export. Received: sentences={options.sentences}")
        rows, tokens, sentences = context["rows"], context["tokens"], context["sentences"]
        batch = tokens.nrows()
        outputs = {name: tensor[:-1] for name, tensor in outputs.items()}  # the last sentence belongs to no text
        kept = tf.boolean_mask(outputs["kept"], sentences[:-1] != "")
        confidence = tf.math.unsorted_segment_min(outputs["confidence"], rows, batch)
        texts = []  # the sentences of each text joined with spaces, without empty ones
        for of_rank in tf.unstack(outputs["text"], axis=1):
            is_left = of_rank != ""
            some, their_rows = tf.boolean_mask(of_rank, is_left), tf.boolean_mask(rows, is_left)
            texts.append(tf.strings.unsorted_segment_join(some, their_rows, batch, separator=" "))
        joined = {
            "text": tf.stack(texts, axis=1),
            "score": tf.math.unsorted_segment_mean(outputs["score"], rows, batch),
            "confidence": confidence,
            "unsure": confidence < self.config.confidence.threshold,
            "kept": tokens.with_flat_values(kept).to_tensor(False),
            "source_tokens": tf.strings.regex_replace(tokens.to_tensor(""), JOINER, ""),
        }
        return super().serve(joined, context, options)


def _kept(token_ids, tokens):
    """Return the source tokens as they are written, and whether each is kept, `(batch, num_best, source)`."""
    missing = tf.maximum(tf.shape(tokens)[1] - tf.shape(token_ids)[2], 0)
    tags = tf.pad(token_ids, [[0, 0], [0, 0], [0, missing]])[..., : tf.shape(tokens)[1]]
    tokens = tf.broadcast_to(tokens[:, tf.newaxis], tf.shape(tags))
    keep = keep_whole_numbers(tokens, keep_qualifiers(tokens, (tags == KEEP) & (tokens != "")))
    return capitalize_first(tokens, keep), keep


def keep_limit(mask: tf.Tensor, options: CompressionDecodingOptions) -> Scorer:
    """Return a scorer that applies `keep_bias` and the limits on the number of kept words.

    Args:
        mask: boolean `(batch, source)`, true for words.
    """
    lengths = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)

    def call(token: tf.Tensor, state: Mapping[str, Any]) -> tuple[tf.Tensor, dict[str, Any]]:
        kept = state["kept"] + tf.cast(token == KEEP, tf.int32)
        left = state["left"] - tf.cast(token >= DELETE, tf.int32)
        keep = options.keep_bias * tf.ones_like(kept, tf.float32)
        if options.max_words is not None:
            keep += VERY_NEGATIVE * tf.cast(kept >= options.max_words, tf.float32)
        delete = VERY_NEGATIVE * tf.cast((kept + left <= options.min_words) & (left > 0), tf.float32)
        scores = keep[:, tf.newaxis] * tf.one_hot(KEEP, KEEP + 1)
        scores += delete[:, tf.newaxis] * tf.one_hot(DELETE, KEEP + 1)
        return scores, {"kept": kept, "left": left}

    return Scorer(call, {"kept": tf.zeros_like(lengths), "left": lengths}, upper_bound=max(options.keep_bias, 0.0))
