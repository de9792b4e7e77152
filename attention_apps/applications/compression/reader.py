"""Reads texts as tokenized sentences."""

import tensorflow as tf

from attention_apps.applications.parts import Tensors
from attention_apps.applications.summarization.reader import TextReader, pad, read_text_in_graph
from attention_apps.preprocessing.sentences import piece_starts, tokenize_sentence


class SentenceReader(TextReader):
    """Reads strings or UTF-8 bytes sentence by sentence. A sentence that is too long for the model is split."""

    tokenize = staticmethod(tokenize_sentence)
    reads_all = True

    def in_graph(self, text: tf.Tensor) -> tuple[Tensors, Tensors]:
        """Read all sentences of all texts. The context says which text each sentence belongs to."""
        tokens, starts, context = read_text_in_graph(text, self.tokenize)
        pieces = piece_starts(starts, self.max_length).flat_values
        rows = tf.boolean_mask(tokens.value_rowids(), pieces)
        sentences = tf.RaggedTensor.from_row_starts(tokens.flat_values, tf.where(pieces)[:, 0])
        # One more sentence, which belongs to no text, because a search over an empty batch fails.
        padded = pad(tf.concat([sentences, tf.constant([["."]])], axis=0))
        return {"tokens": padded}, {**context, "rows": rows, "tokens": tokens, "sentences": padded}
