"""Summaries from strings to strings in one graph of core TensorFlow ops: what an export holds."""

from typing import Any

import tensorflow as tf

from attention_apps.applications.summarizer_config import SummaryOptions
from attention_apps.decoding import DecodingResult
from attention_apps.preprocessing.sentences import count_words, first_passage_lengths, piece_starts, sentence_starts
from attention_apps.preprocessing.text import JOINER, normalise

# What became of a text: summarized; so as well, but for what came after the first passage; too short to be made
# shorter, and so its own summary; blank.
STATUSES = ("ok", "cut", "short", "blank")
# A text of fewer words is its own summary.
FEWEST_WORDS = 4
_OF_THE_BEST = {"token_ids", "tokens", "attention", "kept"}


class SummaryGraph:
    """Graph code that answers a batch of texts as `TextSummarizer.summarize` does, with the options it was made with.

    Of a text longer than the model reads, the first passage is summarized; where words are deleted, every sentence is
    shortened.

    Args:
        summarizer: a trained `TextSummarizer`.
        options: those of its configuration by default.

    Call arguments:
        texts: strings `(batch,)`.

    Returns:
        A dict: `text` `(batch,)`, `score` `(batch,)`, `alternatives` and `alternative_scores` `(batch, num_best)`, best
        first, `source_tokens` `(batch, source)`, and `status` `(batch,)`, one of `STATUSES`. Where words are written:
        `token_ids` and `tokens` `(batch, target)` of the best, and `attention` `(batch, target, source)`. Where they
        are deleted: `kept` `(batch, source)`, whether the best has each source token. All four are empty where the text
        is its own summary.
    """

    def __init__(self, summarizer: Any, options: SummaryOptions | None = None):
        options = summarizer.config.decoding if options is None else options
        if options.sentences is not None:
            raise ValueError(f"`sentences` must be None in a graph. Received: sentences={options.sentences}")
        self.summarizer = summarizer
        self.way = summarizer._way
        self.options = self.way.options(options)

    def __call__(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        tokens, plain = self.way.tokenize(texts), normalise(texts)
        starts, words = sentence_starts(tokens), count_words(tokens)
        answer = self._delete if self.summarizer.config.method == "delete" else self._write
        outputs, is_cut = answer(tokens, starts)
        is_short, is_blank = words < FEWEST_WORDS, tokens.row_lengths() == 0
        for name in outputs.keys() & _OF_THE_BEST:
            outputs[name] = _cleared(outputs[name], is_short)
        best = tf.range(self.options.num_best) == 0
        verbatim = tf.where(best, plain[:, tf.newaxis], "")
        no_score = tf.where(best & ~is_blank[:, tf.newaxis], 0.0, float("-inf"))
        alternatives = tf.where(is_short[:, tf.newaxis], verbatim, outputs.pop("texts"))
        scores = tf.where(is_short[:, tf.newaxis], no_score, outputs.pop("scores"))
        status = tf.where(is_short, tf.where(is_blank, "blank", "short"), tf.where(is_cut, "cut", "ok"))
        return {
            "text": alternatives[:, 0],
            "score": scores[:, 0],
            "alternatives": alternatives,
            "alternative_scores": scores,
            "status": status,
            **outputs,
        }

    def _write(self, tokens, starts):
        """A summary of the first passage of each text."""
        read = first_passage_lengths(starts, self.summarizer.config.max_source_length)
        places = tf.ragged.range(tokens.row_lengths())
        is_read = places.flat_values < tf.gather(read, tokens.value_rowids())
        padded = _padded(tf.ragged.boolean_mask(tokens, tokens.with_flat_values(is_read)))
        source, result = self._search(padded)
        longest = tf.maximum(tf.reduce_max(result.lengths[:, 0]), 1)
        token_ids = result.token_ids[:, 0, :longest]
        words, _ = self.way.words(token_ids[:, tf.newaxis], source, padded)
        first = self.way.first_position
        attention = self.summarizer._attend(source, token_ids)[..., first : first + tf.shape(padded)[1]]
        is_word = (words[:, 0] != "")[..., tf.newaxis]
        outputs = {
            "texts": self.way.texts(result.token_ids, source, padded),
            "scores": result.scores,
            "token_ids": token_ids,
            "tokens": _plain(words[:, 0]),
            "attention": tf.where(is_word, attention, 0.0),
            "source_tokens": _plain(padded),
        }
        return outputs, read < tokens.row_lengths()

    def _delete(self, tokens, starts):
        """Every sentence of each text shortened, and the sentences joined again."""
        batch = tokens.nrows()
        pieces = piece_starts(starts, self.summarizer.config.max_source_length).flat_values
        rows = tf.boolean_mask(tokens.value_rowids(), pieces)
        sentences = tf.RaggedTensor.from_row_starts(tokens.flat_values, tf.where(pieces)[:, 0])
        # One more, which is nobody's: a search over no sentence at all has nothing to begin with.
        padded = _padded(tf.concat([sentences, tf.constant([["."]])], axis=0))
        source, result = self._search(padded)
        texts = self.way.texts(result.token_ids, source, padded)[:-1]
        joined = [_joined(texts[:, rank], rows, batch) for rank in range(self.options.num_best)]
        kept = self.way.words(result.token_ids[:, :1], source, padded)[1][:-1, 0]
        kept = tf.boolean_mask(kept, padded[:-1] != "")
        outputs = {
            "texts": tf.stack(joined, axis=1),
            "scores": tf.math.unsorted_segment_mean(result.scores[:-1], rows, batch),
            "kept": tokens.with_flat_values(kept).to_tensor(False),
            "source_tokens": _plain(tokens.to_tensor("")),
        }
        return outputs, tf.zeros([batch], tf.bool)

    def _search(self, padded: tf.Tensor) -> tuple[dict[str, tf.Tensor], DecodingResult]:
        source = self.way.source(padded)
        return source, self.summarizer._search_in_graph(source, self.options)


def _padded(tokens):
    """`(batch, source)`, at least one column, padded with empty strings."""
    padded = tokens.to_tensor("")
    return tf.pad(padded, [[0, 0], [0, tf.cast(tf.shape(padded)[1] == 0, tf.int32)]], constant_values="")


def _joined(sentences, rows, batch):
    """The sentences of each row with spaces between them, those of which nothing is left passed over."""
    is_left = sentences != ""
    sentences, rows = tf.boolean_mask(sentences, is_left), tf.boolean_mask(rows, is_left)
    return tf.strings.unsorted_segment_join(sentences, rows, batch, separator=" ")


def _plain(tokens):
    return tf.strings.regex_replace(tokens, JOINER, "")


def _cleared(tensor, rows):
    """With nothing in some of the rows."""
    shape = tf.concat([tf.shape(rows), tf.ones([tf.rank(tensor) - 1], tf.int32)], axis=0)
    nothing = "" if tensor.dtype == tf.string else tf.zeros([], tensor.dtype)
    return tf.where(tf.reshape(rows, shape), nothing, tensor)
