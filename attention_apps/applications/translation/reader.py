"""Texts as sentences of words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from attention_apps.applications.parts import OutputOptions, RawInput, Reading, Source, Tensors
from attention_apps.applications.summarization.reader import BLANK, CUT, OK, TOO_LONG, pad, plain_token, sentence_spans
from attention_apps.applications.translation.config import TranslatorConfig
from attention_apps.preprocessing.sentences import piece_starts, sentence_starts
from attention_apps.preprocessing.sub_words import split_words
from attention_apps.serving import DEFAULT_SIGNATURE

# The longest text that is translated at all, and what an exported model takes: bytes and sentences of one text.
MAX_BYTES = 1 << 20
MAX_EXPORTED_BYTES = 1 << 14
MAX_EXPORTED_SENTENCES = 16
_NOTE = (
    f"texts of at most {MAX_EXPORTED_BYTES:,} bytes of UTF-8, of which the first {MAX_EXPORTED_SENTENCES} sentences "
    "are translated; invalid bytes are read as U+FFFD"
)
_HAS_LETTER = r"(?s:.*)\pL(?s:.*)"


@dataclass(frozen=True, eq=False)
class ShownWords:
    """What the result of a text needs of it: its words, with and without joiner marks, and the line of each."""

    words: list[bytes]
    tokens: list[str]
    line_of: np.ndarray


class TranslationReader:
    """Reads strings, and bytes of UTF-8, sentence by sentence; a longer sentence than the model reads is cut.

    A sentence ends with its line. One without letters has nothing to translate.
    """

    # Bytes of the sentences that are translated at once.
    max_batch_length = 1 << 14
    signature: ClassVar[Mapping[str, tf.TensorSpec]] = {"tokens": tf.TensorSpec((None, None), tf.string)}

    def __init__(self, config: TranslatorConfig):
        self.max_length = config.max_sentence_length

    def read(self, item: Any, options: OutputOptions) -> Reading:
        if not isinstance(item, str | bytes):
            raise TypeError(f"A text must be a string or bytes. Received: {type(item).__name__}")
        encoded = item.encode("utf-8", "surrogatepass") if isinstance(item, str) else item
        if len(encoded) > MAX_BYTES:
            raise ValueError(f"A text must have at most {MAX_BYTES:,} bytes. Received: {len(encoded):,} bytes")
        words = split_words(encoded.split(b"\n"))
        flat, spans = words.flat_values.numpy().tolist(), sentence_spans(self._starts(words).numpy())
        shown = ShownWords(flat, [plain_token(word) for word in flat], words.value_rowids().numpy())
        is_word = has_letter(words.flat_values).numpy()
        return Reading([make_source(flat, span, is_word[slice(*span)].any()) for span in spans], item, shown)

    def in_graph(self, text: tf.Tensor) -> tuple[Tensors, Tensors]:
        """Read the sentences of all texts; the context says which line and which text each belongs to."""
        is_too_long = tf.strings.length(text) > MAX_EXPORTED_BYTES
        lines = tf.strings.split(tf.where(is_too_long, "", text), "\n")
        words = split_words(lines.flat_values)
        starts = self._starts(words)
        sentences = tf.RaggedTensor.from_row_starts(words.flat_values, tf.where(starts)[:, 0])
        line_of = tf.boolean_mask(words.value_rowids(), starts)
        text_of = tf.gather(lines.value_rowids(), line_of)
        # The number of each sentence in its text.
        places = tf.range(tf.size(text_of, tf.int64)) - tf.searchsorted(text_of, text_of, out_type=tf.int64)
        is_read = places < MAX_EXPORTED_SENTENCES
        is_cut = tf.math.unsorted_segment_max(tf.cast(~is_read, tf.int32), text_of, lines.nrows()) > 0
        is_blank = tf.math.bincount(tf.cast(text_of, tf.int32), minlength=tf.size(text), maxlength=tf.size(text)) == 0
        status = tf.where(is_too_long, TOO_LONG, tf.where(is_blank, BLANK, tf.where(is_cut, CUT, OK)))
        context = {
            "status": status,
            "line_of": tf.boolean_mask(line_of, is_read),
            "text_of": tf.boolean_mask(text_of, is_read),
            "text_of_line": lines.value_rowids(),
        }
        # One more sentence, of no text: a search over no sentence at all has nothing to begin with.
        padded = pad(tf.concat([tf.ragged.boolean_mask(sentences, is_read), tf.constant([["."]])], axis=0))
        return {"tokens": padded}, context

    def raw_inputs(self) -> dict[str, RawInput]:
        specs = {"text": tf.TensorSpec([None], tf.string)}
        example = {"text": ["A man is eating an apple."]}
        return {DEFAULT_SIGNATURE: RawInput(self.in_graph, specs, example, {"text": _NOTE})}

    def _starts(self, words: tf.RaggedTensor) -> tf.Tensor:
        """Whether a sentence, or a piece of a long one, begins at each word."""
        sizes = tf.strings.length(words.flat_values) + 1
        return piece_starts(sentence_starts(words), self.max_length, sizes).flat_values


def has_letter(words: tf.Tensor) -> tf.Tensor:
    """Graph code: whether each word has a letter, which numbers and punctuation have not."""
    return tf.strings.regex_full_match(words, _HAS_LETTER)


def make_source(words: list[bytes], span: tuple[int, int], is_answered: bool) -> Source:
    """A sentence of a text; without letters there is nothing to answer."""
    sentence = np.array(words[slice(*span)], object)
    length = sum(len(word) + 1 for word in sentence)
    return Source({"tokens": sentence} if is_answered else None, length, span)
