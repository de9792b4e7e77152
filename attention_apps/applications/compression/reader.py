"""Reads texts as tokenized sentences."""

import tensorflow as tf

from attention_apps.applications.parts import Tensors
from attention_apps.applications.summarization.reader import CUT, OK, TextReader, pad, read_text_in_graph
from attention_apps.preprocessing.sentences import piece_starts, tokenize_sentence

# What an exported model reads of one text. All its sentences are padded to the longest.
MAX_EXPORTED_BYTES = 1 << 14
MAX_EXPORTED_SENTENCES = 64


class SentenceReader(TextReader):
    """Reads strings or UTF-8 bytes sentence by sentence. A sentence that is too long for the model is split."""

    tokenize = staticmethod(tokenize_sentence)
    reads_all = True
    note = (
        f"texts of at most {MAX_EXPORTED_BYTES:,} bytes of UTF-8, of which the first {MAX_EXPORTED_SENTENCES} "
        "sentences are compressed; invalid bytes are read as U+FFFD"
    )

    def in_graph(self, text: tf.Tensor) -> tuple[Tensors, Tensors]:
        """Read the first sentences of all texts. The context says which text each sentence belongs to."""
        tokens, starts, context = read_text_in_graph(text, self.tokenize, MAX_EXPORTED_BYTES)
        pieces = piece_starts(starts, self.max_length)
        # The number of each token's sentence in its text, from 1 on.
        numbers = tf.cumsum(tf.cast(pieces.flat_values, tf.int64))
        numbers -= tf.gather(numbers, tf.gather(tokens.row_starts(), tokens.value_rowids())) - 1
        is_read = tokens.with_flat_values(numbers <= MAX_EXPORTED_SENTENCES)
        is_cut = (context["status"] == OK) & ~tf.reduce_all(is_read, axis=1)
        status = tf.where(is_cut, CUT, context["status"])
        tokens, pieces = tf.ragged.boolean_mask(tokens, is_read), tf.ragged.boolean_mask(pieces, is_read).flat_values
        rows = tf.boolean_mask(tokens.value_rowids(), pieces)
        sentences = tf.RaggedTensor.from_row_starts(tokens.flat_values, tf.where(pieces)[:, 0])
        # One more sentence, which belongs to no text, because a search over an empty batch fails.
        padded = pad(tf.concat([sentences, tf.constant([["."]])], axis=0))
        return {"tokens": padded}, {**context, "status": status, "rows": rows, "tokens": tokens, "sentences": padded}
