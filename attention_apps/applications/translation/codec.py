"""Convert translations to word pieces, and model outputs to a `Translation`."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import tensorflow as tf

from attention_apps.applications.outputs import (
    calibrated,
    clear_rows,
    token_probabilities,
)
from attention_apps.applications.parts import AnsweredParts, Codec, OutputOptions, Reading, Tensors
from attention_apps.applications.summarization.reader import BLANK, CUT, OK, TOO_LONG
from attention_apps.applications.summarization.summary import SummaryLine
from attention_apps.applications.translation.config import TranslatorConfig
from attention_apps.applications.translation.reader import has_letter
from attention_apps.applications.translation.translation import Translation
from attention_apps.constants import PADDING, START, UNKNOWN
from attention_apps.decoding import DecodingOptions, DecodingResult
from attention_apps.preprocessing.sub_words import WordPieces
from attention_apps.preprocessing.text import JOINER, detokenize
from attention_apps.preprocessing.vocabulary import Vocabulary


class TranslationCodec(Codec):
    """Reads and writes pieces of words, and shows the attention between whole words.

    Args:
        vocabulary: word pieces; see `learn_word_pieces`.
    """

    result = Translation
    output_notes: Mapping[str, str] = {
        "text": "translations, best first",
        "score": "what the translations are ranked by, the mean over the sentences; more is better",
        "confidence": "how sure the least sure sentence is, from 0 to 1",
        "unsure": "whether that is below the threshold of the preset",
        "token_ids": "for each sentence, ids of the word pieces of its best translation, then the end token 2, then 0",
        "tokens": "for each sentence, the words of its best translation, then empty strings",
        "attention": "for each of these words, how much each word of the sentence was read",
        "source_tokens": "for each sentence, its words, then empty strings",
        "status": ", ".join(f"`{status}`" for status in (OK, CUT, BLANK, TOO_LONG)),
    }

    def __init__(self, config: TranslatorConfig, vocabulary: Vocabulary):
        super().__init__(config, vocabulary)
        self.word_pieces = WordPieces(vocabulary)
        self.resources = self.word_pieces.resources

    def prepare(self, source: Tensors) -> Tensors:
        """Return the ids of the word pieces `(batch, source)`, and the index of each piece's word, -1 at padding."""
        words = tf.RaggedTensor.from_tensor(source["tokens"], padding="")
        pieces = self.word_pieces.segment(words.flat_values)
        token_ids = words.with_values(pieces).merge_dims(1, 2)
        places = tf.gather(tf.ragged.range(words.row_lengths()).flat_values, pieces.value_rowids())
        ids = token_ids.to_tensor(PADDING)
        copied = {"source_ids": ids} if self.config.decoder.copying else {}
        return {"token_ids": ids, "word_of": token_ids.with_flat_values(places).to_tensor(-1), **copied}

    def search_options(self, options: DecodingOptions) -> DecodingOptions:
        """Ban all special tokens but the end."""
        banned = {*options.banned_tokens, PADDING, START, UNKNOWN}
        return replace(options, banned_tokens=tuple(sorted(banned)))

    def texts(self, token_ids: tf.Tensor, source: Tensors) -> tf.Tensor:
        return self.word_pieces.join(token_ids)

    def outputs(self, source: Tensors, memory: Tensors, result: DecodingResult, forced: Tensors) -> Tensors:
        token_ids = forced["token_ids"]
        is_piece = token_ids > UNKNOWN
        starts = tf.gather(self.word_pieces.starts_word, token_ids)
        word_of = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, 0)
        word_of = tf.where(is_piece, word_of, -1)  # (batch, target)
        # Attention is averaged over the pieces of each target word, and summed over the pieces of each source word.
        read = tf.one_hot(source["word_of"], tf.shape(source["tokens"])[1])  # (batch, source pieces, source words)
        written = tf.one_hot(word_of, tf.shape(word_of)[1], axis=1)  # (batch, target words, target pieces)
        written /= tf.maximum(tf.reduce_sum(written, axis=-1, keepdims=True), 1.0)
        return {
            "text": self.texts(result.token_ids, source),
            "score": result.scores,
            **calibrated(token_probabilities(forced), token_ids > PADDING, self.config.confidence),
            "token_ids": token_ids,
            "tokens": self._words(token_ids, word_of),
            "attention": written @ tf.cast(forced["attention"], tf.float32) @ read,
            "source_tokens": tf.strings.regex_replace(source["tokens"], JOINER, ""),
            "verbatim": detokenize(source["tokens"]),
            "has_letter": tf.reduce_any(has_letter(source["tokens"]), axis=1),
        }

    def _words(self, token_ids, word_of):
        """Return the words `(batch, target)` that the pieces spell, then empty strings."""
        batch, length = tf.unstack(tf.shape(token_ids))
        segments = tf.where(word_of < 0, length, word_of) + tf.range(batch)[:, tf.newaxis] * (length + 1)
        pieces = self.word_pieces.sub_words.spell(token_ids)
        words = tf.strings.unsorted_segment_join(
            tf.reshape(pieces, [-1]), tf.reshape(segments, [-1]), batch * (length + 1)
        )
        words = tf.strings.unicode_transcode(words, "UTF-8", "UTF-8", errors="replace")
        words = tf.strings.strip(tf.strings.regex_replace(words, JOINER, ""))
        return tf.reshape(words, [batch, length + 1])[:, :length]

    def join(self, reading: Reading, parts: AnsweredParts, options: OutputOptions) -> Translation:
        shown, threshold = reading.shown, self.config.confidence.threshold
        count = max((len(outputs["score"]) for _, outputs in parts if outputs is not None), default=1)
        lines = []
        for source, outputs in parts:
            if outputs is not None:
                lines.append(SummaryLine.from_outputs(outputs, source.place, copied=False))
                continue
            span = slice(*source.place)  # without letters, the sentence is its own translation
            text = detokenize(tf.constant([shown.words[span]]))[0].numpy().decode()
            copied = [True] * len(shown.tokens[span])
            lines.append(SummaryLine(0.0, shown.tokens[span], [(text, 0.0)] * count, None, copied, source.place))
        numbers = [int(shown.line_of[source.place[0]]) for source, _ in parts]
        separators = ["\n" * int(breaks) or " " for breaks in np.diff(numbers, append=numbers[-1:])]
        return Translation(lines, shown.tokens, threshold=threshold, source=reading.item, separators=separators)

    def serve(self, outputs: Tensors, context: Tensors, options: OutputOptions) -> Tensors:
        """Join the sentences of each text; one without letters is its own translation."""
        outputs = {name: tensor[:-1] for name, tensor in outputs.items()}  # the last sentence is of no text
        status, text_of = context["status"], context["text_of"]
        count = tf.size(status, tf.int64)
        is_verbatim, verbatim = ~outputs.pop("has_letter"), outputs.pop("verbatim")
        outputs = {**clear_rows(outputs, is_verbatim), "source_tokens": outputs["source_tokens"]}
        texts = tf.where(is_verbatim[:, tf.newaxis], verbatim[:, tf.newaxis], outputs["text"])
        scores = tf.where(is_verbatim[:, tf.newaxis], 0.0, outputs["score"])
        confidence = tf.where(is_verbatim, 1.0, outputs["confidence"])
        confidence = tf.math.unsorted_segment_min(confidence, text_of, count)
        parts = ("token_ids", "tokens", "attention", "source_tokens")
        lines, texts_of_ranks = context["text_of_line"], []
        for sentences in tf.unstack(texts, axis=1):
            line = tf.strings.unsorted_segment_join(sentences, context["line_of"], tf.size(lines), separator=" ")
            line = tf.strings.strip(tf.strings.regex_replace(line, " +", " "))
            whole = tf.strings.unsorted_segment_join(line, lines, count, separator="\n")
            texts_of_ranks.append(tf.strings.strip(whole))
        joined = {
            "text": tf.stack(texts_of_ranks, axis=1),
            "score": tf.math.unsorted_segment_mean(scores, text_of, count),
            "confidence": confidence,
            "unsure": confidence < self.config.confidence.threshold,
            **{name: tf.RaggedTensor.from_value_rowids(outputs[name], text_of, count).to_tensor() for name in parts},
        }
        return {**clear_rows(joined, (status != OK) & (status != CUT)), "status": status}
