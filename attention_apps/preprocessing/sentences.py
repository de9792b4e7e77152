"""Split texts into sentences, and sentences into words as sentence compression corpora do, in graph code.

`sentence_starts` takes tokens of `text.tokenize` or `tokenize_sentence`: ragged, `(batch, None)`, with joiner marks.

The corpora split words as the Penn Treebank does. Contractions, possessives and most punctuation are separate tokens.
Hyphens and the periods of abbreviations stay in their words. Each token keeps the user's spelling, with a joiner mark
if no space preceded it:

    He doesn't pay "Inc. Ltd." $3,000.
    He does ￭n't pay " ￭Inc. Ltd. ￭" $ ￭3,000 ￭.

Text that is already split this way stays unchanged. The model sees the output of `model_form`: lowercase tokens, `##`
for every token with a digit, and separate opening and closing quotes.
"""

from collections.abc import Sequence

import tensorflow as tf

from attention_apps.preprocessing.text import JOINER, detokenize, normalize

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
    # The last value, which wraps around to the first place, has no effect: the first token is always a start.
    before = tf.where(first, "", tf.roll(flat, 1, axis=0))
    closes = ends & ~tf.strings.regex_full_match(before, _ABBREVIATION)
    # A token that is joined to the previous one, and is not an end itself, changes nothing.
    ended = _at_last(closes, ends | ~joined | first)
    begins = tf.roll(ended, 1, axis=0) & ~joined & ~tf.strings.regex_full_match(flat, _BEGINS_SMALL)
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
    return starts.with_flat_values(starts.flat_values | (pieces != tf.roll(pieces, 1, axis=0)))


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


def _at_last(values, marks):
    """Return, for each position, the value at the last marked position."""
    places = tf.where(marks)[:, 0]
    return tf.gather(values, tf.gather(places, tf.cumsum(tf.cast(marks, tf.int64)) - 1))


_SEAM = "\x01"
_KEPT_STOP = "\x02"
_KEPT_APOSTROPHE = "\x03"
_SEAMED = _SEAM + r"\0" + _SEAM
# Excludes hyphens, periods, apostrophes, and ampersands, which occur in names.
_PUNCTUATION = (
    r"""<unk>|``|''|\.\.+|--+|[\x{2013}\x{2014}\x{2026}"`,;:?!%()\[\]{}<>/=+*\x{201C}\x{201D}\x{AB}\x{BB}\p{Sc}]"""
)
_APOSTROPHE = r"['\x{2018}\x{2019}]"
_CONTRACTED = "s|m|d|re|ve|ll"
_SPLIT_CONTRACTION = rf"(?i)(^| )({_APOSTROPHE})({_CONTRACTED})( |$)"
# What may follow the period of a sentence, and abbreviations whose period does not end one.
_CLOSING = rf"""(?:{_SEAM}|{_APOSTROPHE}|["\x{{201D}})])"""
_LAST_STOP = rf"\.({_CLOSING}*)( [^ .\p{{Ll}}0-9{_SEAM}]| {_SEAM}[^,;:?!]|$)"
_KEPT_ABBREVIATION = r"\b([A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Gen|Gov|Sen|Rep|Lt|Col|Sgt|Capt|vs)\."
# Words without which a kept verb or noun says something else, words that belong to an amount, and its units.
_QUALIFIER = (
    r"(?i)not|n'?t|no|never|neither|allegedly|reportedly|apparently|supposedly|purportedly|possibly|nearly|almost"
)
_NUMBER = (
    r"(?i).*[0-9#].*|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozens?|"
    r"hundreds?|thousands?|half"
)
_UNIT = r"(?i)percent|%|millions?|billions?|trillions?|\p{Sc}"
_BEFORE_AMOUNT = r"(?i)by|for|to|at|about|around|over|under"
_OPENING_QUOTE = rf"""^(?:"|{JOINER}?[\x{{201C}}\x{{AB}}])$"""
_CLOSING_QUOTE = rf"""^(?:{JOINER}"|{JOINER}?[\x{{201D}}\x{{BB}}])$"""


def tokenize_sentence(strings: tf.Tensor | Sequence[str | bytes]) -> tf.RaggedTensor:
    """Return the tokens of each sentence, `(batch, None)`, in the user's spelling."""
    text = tf.strings.regex_replace(normalize(strings), _PUNCTUATION, _SEAMED)
    text = tf.strings.regex_replace(text, rf"([0-9]){_SEAM}([,:]){_SEAM}([0-9])", r"\1\2\3")
    text = tf.strings.regex_replace(text, r"([0-9])(-)([0-9])", _SEAM.join([r"\1", r"\2", r"\3"]))
    text = tf.strings.regex_replace(text, _KEPT_ABBREVIATION, rf"\1{_KEPT_STOP}")
    text = tf.strings.regex_replace(text, _LAST_STOP, rf"{_SEAM}.{_SEAM}\1\2")
    text = tf.strings.regex_replace(text, _KEPT_STOP, ".")
    text = tf.strings.regex_replace(text, _SPLIT_CONTRACTION, rf"\1\2{_KEPT_APOSTROPHE}\3\4")
    opening = rf"(^|[ {_SEAM}])({_APOSTROPHE})([^ '{_SEAM}{_KEPT_APOSTROPHE}])"
    text = tf.strings.regex_replace(text, opening, rf"\1\2{_SEAM}\3")
    text = tf.strings.regex_replace(text, _KEPT_APOSTROPHE, "")
    text = tf.strings.regex_replace(text, rf"([^ '{_SEAM}])({_APOSTROPHE})($|[ {_SEAM}])", rf"\1{_SEAM}\2\3")
    contractions = rf"(?i)([a-z])({_APOSTROPHE}(?:{_CONTRACTED})|n{_APOSTROPHE}t)($|[ {_SEAM}])"
    text = tf.strings.regex_replace(text, contractions, rf"\1{_SEAM}\2\3")
    text = tf.strings.regex_replace(text, f"{_SEAM}* {_SEAM}*|^{_SEAM}+|{_SEAM}+$", " ")
    return tf.strings.split(tf.strings.regex_replace(text, f"{_SEAM}+", f" {JOINER}"))


def model_form(tokens: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
    """Convert tokens to the form that the model sees. Tokens already in this form stay unchanged."""
    if isinstance(tokens, tf.RaggedTensor):
        return tokens.with_flat_values(model_form(tokens.flat_values))
    tokens = tf.strings.regex_replace(tokens, _CLOSING_QUOTE, "''")
    tokens = tf.strings.regex_replace(tokens, _OPENING_QUOTE, "``")
    tokens = tf.strings.regex_replace(tokens, JOINER, "")
    tokens = tf.strings.regex_replace(tokens, "[\u2018\u2019]", "'")
    tokens = tf.strings.regex_replace(tokens, r"^.*[0-9].*$", "##")
    return tf.strings.lower(tokens, encoding="utf-8")


def keep_whole_numbers(tokens: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
    """Keep "3-2" as one word: with its hyphen if both numbers are kept, and otherwise not at all.

    Args:
        tokens: `(batch, ..., source)`, padded with empty strings.
        keep: boolean, of the same shape.
    """
    shape = tf.shape(tokens)
    tokens, kept = tf.reshape(tokens, [-1, shape[-1]]), tf.reshape(keep, [-1, shape[-1]])
    ends_in_digit = tf.strings.regex_full_match(tokens, ".*[0-9]")
    begins_with_digit = tf.strings.regex_full_match(tokens, f"{JOINER}[0-9].*")
    is_hyphen = (tokens == f"{JOINER}-") & _shift(ends_in_digit, 1) & _shift(begins_with_digit, -1)
    # A hyphen and the number after it belong to the group of the number before it. Hyphens have no vote.
    groups = _group_ids(is_hyphen | _shift(is_hyphen, 1))
    votes = tf.cast(kept | is_hyphen, tf.int32)
    return tf.reshape(tf.gather(tf.math.unsorted_segment_min(votes, groups, tf.size(groups)), groups) > 0, shape)


def keep_qualifiers(tokens: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
    """Keep "not", "allegedly" and quantities where the words that they belong to are kept.

    A qualifier belongs to the next two words. A quantity is kept or deleted as a whole: with the next word, and an
    amount such as "by 5 percent" also with the word before it.

    Args:
        tokens: `(batch, ..., source)`, padded with empty strings.
        keep: boolean, of the same shape.
    """
    shape = tf.shape(tokens)
    tokens, kept = tf.reshape(tokens, [-1, shape[-1]]), tf.reshape(keep, [-1, shape[-1]])
    words = tf.strings.regex_replace(tf.strings.regex_replace(tokens, JOINER, ""), "[\u2018\u2019]", "'")
    is_word = tf.strings.regex_full_match(words, r"(?s:.*)[\pL\pN#](?s:.*)")
    is_unit = tf.strings.regex_full_match(words, _UNIT)
    is_number = tf.strings.regex_full_match(words, _NUMBER) | is_unit
    is_before = tf.strings.regex_full_match(words, _BEFORE_AMOUNT) & _shift(is_number, -1)
    # The tokens of a quantity form a group; every other token is a group of its own.
    is_part = is_number | is_before
    groups = _group_ids(is_part & _shift(is_part, 1))

    def in_group(marks):
        votes = tf.math.unsorted_segment_max(tf.cast(marks, tf.int32), groups, tf.size(groups))
        return tf.gather(votes, groups) > 0

    neighbors = (_shift(kept & is_word, -1) & ~_shift(is_part, -1)) | (
        in_group(is_unit) & _shift(kept & is_word, 1) & ~_shift(is_part, 1)
    )
    kept |= is_part & in_group(is_number) & in_group(is_part & (neighbors | (kept & is_number)))
    is_qualifier = tf.strings.regex_full_match(words, _QUALIFIER)
    follows = _shift(kept & is_word, -1) | (_shift(is_word, -1) & _shift(kept & is_word, -2))
    return tf.reshape(kept | (is_qualifier & follows), shape)


def _group_ids(continues):
    """Number the groups of neighboring tokens, `(rows, columns)`. A marked token belongs to the group before it."""
    groups = tf.cumsum(tf.cast(~continues, tf.int32), axis=1) - 1
    return groups + tf.range(tf.shape(continues)[0])[:, tf.newaxis] * tf.shape(continues)[1]


def _shift(marks, places):
    """Move boolean marks `(rows, columns)` to the right, or to the left if `places` is negative."""
    width = tf.shape(marks)[1]
    if places > 0:
        return tf.pad(marks, [[0, 0], [places, 0]])[:, :width]
    return tf.pad(marks, [[0, 0], [0, -places]])[:, -places:]


def capitalize_first(tokens: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
    """Capitalize the first kept word if the sentence starts with a capital letter.

    Words that are not all lowercase, such as "iPhone", stay unchanged.

    Args:
        tokens: `(batch, ..., source)`, padded with empty strings.
        keep: boolean, of the same shape.
    """
    is_word = tf.strings.regex_full_match(tokens, r"(?s:.*)[\pL\pN](?s:.*)")
    begins_large = tf.strings.regex_full_match(tokens, rf"{JOINER}?\p{{Lu}}(?s:.*)")
    first_word, first_kept = (
        marks & (tf.cumsum(tf.cast(marks, tf.int32), axis=-1) == 1) for marks in (is_word, is_word & keep)
    )
    has_capital = tf.reduce_any(first_word & begins_large, axis=-1, keepdims=True)
    is_small = tf.strings.regex_full_match(tokens, rf"{JOINER}?\p{{Ll}}[^\p{{Lu}}]*")
    letter = tf.strings.upper(tf.strings.regex_replace(tokens, rf"(?s)^{JOINER}?(.).*$", r"\1"), encoding="utf-8")
    joiner = tf.where(tf.strings.regex_full_match(tokens, rf"(?s){JOINER}.*"), JOINER, "")
    capitalized = joiner + letter + tf.strings.regex_replace(tokens, rf"(?s)^{JOINER}?.", "")
    return tf.where(has_capital & is_small & first_kept, capitalized, tokens)


def join_kept(tokens: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
    """Join the kept tokens into text, `(batch, ...)`, in the user's spelling.

    Args:
        tokens: `(batch, ..., source)`, padded with empty strings.
        keep: a boolean mask of the same shape.
    """
    before = tf.pad(keep, [[0, 0]] * (len(keep.shape) - 1) + [[1, 0]])[..., :-1]
    # A word gets a space if its neighbor was removed. A comma or period joins the previous kept word.
    alone = ~before & tf.strings.regex_full_match(tokens, rf"{JOINER}[\pL\pN].*")
    tokens = tf.where(alone, tf.strings.regex_replace(tokens, JOINER, ""), tokens)
    kept = tf.where(keep, tokens, "")
    shape = tf.shape(kept)
    return tf.reshape(detokenize(tf.reshape(kept, [-1, shape[-1]])), shape[:-1])
