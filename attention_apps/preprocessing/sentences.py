"""Split tokenized texts into sentences and count words, in graph code.

The tokens come from `text.tokenize` or `sentence_words.tokenize_sentence`: ragged, `(batch, None)`, with joiner marks.
"""

import tensorflow as tf

from attention_apps.preprocessing.text import JOINER

_ENDS = rf"{JOINER}?(?:[.?!\x{{2026}}\x{{3002}}\x{{FF1F}}\x{{FF01}}]|\.\.+){JOINER}?"
_SHORT = "[A-Za-z]|Mr|Mrs|Ms|Dr|Prof|St|Gen|Gov|Sen|Rep|Lt|Col|Sgt|Capt|Jr|Sr|vs|No|Inc|Ltd|Co|Corp"
_ABBREVIATION = rf"{JOINER}?(?:{_SHORT})\.?"
_JOINED = rf"{JOINER}(?s:.*)"
_BEGINS_SMALL = r"\PL*\p{Ll}(?s:.*)"
_WORD = r"(?s:.*)[\pL\pN](?s:.*)"


def count_words(tokens: tf.RaggedTensor) -> tf.Tensor:
    """Return the number of tokens with a letter or digit in each text, int32 `(batch,)`."""
    is_word = tf.strings.regex_full_match(tokens.flat_values, _WORD)
    return tf.reduce_sum(tokens.with_flat_values(tf.cast(is_word, tf.int32)), axis=1)


def sentence_starts(tokens: tf.RaggedTensor) -> tf.RaggedTensor:
    """Return which tokens start a sentence: those after the end of another, unless they start with a lowercase letter.

    Closing quotes and brackets after the end belong to the sentence. The period of an abbreviation does not end it.
    """
    flat, rows = tokens.flat_values, tokens.value_rowids()
    first = tf.concat([[True], rows[1:] != rows[:-1]], axis=0)[: tf.size(flat)]
    joined = tf.strings.regex_full_match(flat, _JOINED)
    ends = tf.strings.regex_full_match(flat, _ENDS)
    before = tf.where(first, "", _shifted(flat, ""))
    closes = ends & ~tf.strings.regex_full_match(before, _ABBREVIATION)
    # A token that is joined to the previous one, and is not an end itself, changes nothing.
    ended = _at_last(closes, ends | ~joined | first)
    begins = _shifted(ended, False) & ~joined & ~tf.strings.regex_full_match(flat, _BEGINS_SMALL)
    return tokens.with_flat_values(first | begins)


def piece_starts(starts: tf.RaggedTensor, max_length: int, sizes: tf.Tensor | None = None) -> tf.RaggedTensor:
    """Return `sentence_starts`, with sentences longer than `max_length` split.

    Args:
        sizes: of all tokens, int32 `(tokens,)`; by default each counts as 1. A piece may end with a part of a token
            too much.
    """
    sizes = tf.ones_like(starts.flat_values, tf.int32) if sizes is None else sizes
    before = tf.cumsum(sizes, exclusive=True)
    pieces = (before - _at_last(before, starts.flat_values)) // max_length
    return starts.with_flat_values(starts.flat_values | (pieces != _shifted(pieces, 0)))


def first_passage_lengths(starts: tf.RaggedTensor, max_length: int) -> tf.Tensor:
    """Return the number of tokens in the first whole sentences that fit into `max_length`, int64 `(batch,)`.

    A first sentence that is longer is truncated to `max_length`.
    """
    lengths = starts.row_lengths()
    places = tf.ragged.range(lengths)
    fits = starts.flat_values & (places.flat_values <= max_length)
    longest = tf.reduce_max(places.with_flat_values(tf.where(fits, places.flat_values, 0)), axis=1)
    longest = tf.where(longest <= 0, tf.cast(max_length, tf.int64), longest)
    return tf.where(lengths <= max_length, lengths, longest)


def _shifted(values, first):
    """Return each value's predecessor."""
    return tf.concat([[first], values], axis=0)[:-1]


def _at_last(values, marks):
    """Return, for each position, the value at the last marked position."""
    places = tf.where(marks)[:, 0]
    return tf.gather(values, tf.gather(places, tf.cumsum(tf.cast(marks, tf.int64)) - 1))
