"""Reads texts as tokenized sentences."""

from collections.abc import Mapping
from typing import Any, ClassVar

import tensorflow as tf

from attention_apps.applications.compression.config import CompressorConfig
from attention_apps.applications.parts import RawInput, Reading, Tensors
from attention_apps.applications.summarization.config import SummaryOptions
from attention_apps.applications.summarization.reader import (
    cut_sentences,
    lead_sentences,
    make_sources,
    pad,
    read_text,
    read_text_in_graph,
    text_input,
)
from attention_apps.preprocessing.sentences import piece_starts, tokenize_sentence


class SentenceReader:
    """Reads strings or UTF-8 bytes sentence by sentence. A sentence that is too long for the model is split."""

    max_batch_length = float("inf")
    signature: ClassVar[Mapping[str, tf.TensorSpec]] = {"tokens": tf.TensorSpec((None, None), tf.string)}

    def __init__(self, config: CompressorConfig):
        self.max_length = config.max_source_length

    def read(self, item: Any, options: SummaryOptions) -> Reading:
        text = read_text(item, tokenize_sentence)
        if options.sentences is None:
            passages = cut_sentences(text.sentences, self.max_length)
        else:
            passages = lead_sentences(text, self.max_length, options.sentences)
        return Reading(make_sources(text.tokens, passages), item, text.shown)

    def in_graph(self, text: tf.Tensor) -> tuple[Tensors, Tensors]:
        """Read all sentences of all texts. The context says which text each sentence belongs to."""
        tokens, starts, context = read_text_in_graph(text, tokenize_sentence)
        pieces = piece_starts(starts, self.max_length).flat_values
        rows = tf.boolean_mask(tokens.value_rowids(), pieces)
        sentences = tf.RaggedTensor.from_row_starts(tokens.flat_values, tf.where(pieces)[:, 0])
        # One more sentence, which belongs to no text, because a search over an empty batch fails.
        padded = pad(tf.concat([sentences, tf.constant([["."]])], axis=0))
        return {"tokens": padded}, {**context, "rows": rows, "tokens": tokens, "sentences": padded}

    def raw_inputs(self) -> dict[str, RawInput]:
        return text_input(self.in_graph)
