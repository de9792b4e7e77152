"""Split text into words and join them again.

All but `normalize_transcript` is graph code of core TensorFlow ops.

Punctuation becomes separate tokens. A joiner mark shows on which side a token had no space, so only the kind of white
space is lost:

    He said: "Saint-Germain's U.S. fans (3,000) don't pay £20m for COVID-19."
    He said ￭: "￭ Saint ￭-￭ Germain ￭'s U.S. fans (￭ 3,000 ￭) don't pay £￭ 20m for COVID-19 ￭. ￭"

Marks go on punctuation where possible, so a word is the same token in brackets, in quotes and alone. Apostrophes
inside words, hyphens before digits, separators inside numbers and the periods of "U.S." stay in their tokens. Other
hyphens and the possessive 's are separate tokens, which keeps the vocabulary small. Each Chinese or Japanese character
is a token. HTML is treated as plain text.

Captions and transcripts are simpler: see `split_captions` and `normalize_transcript`.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import tensorflow as tf

JOINER = "\uffed"

_SPACES = r"[\t-\r\x{1C}-\x{20}\x{85}\pZ]+"
_INVISIBLE = r"[\p{Cc}\x{AD}\x{200B}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2060}-\x{2069}\x{FEFF}]"

# Two characters that no normalized text contains: the seam between tokens without a space, and a period inside a token.
_SEAM = "\x01"
_KEPT_STOP = "\x02"
_SEAMED = _SEAM + r"\0" + _SEAM

# The patterns are small: RE2 becomes slow and runs out of memory if a pattern repeats classes like \pL many times.
_IDEOGRAPH = r"[\p{Han}\p{Hiragana}\p{Katakana}]"
_PUNCTUATION = r"\.+|-+|[\pP\pS](?:[\x{FE0F}\x{1F3FB}-\x{1F3FF}]|\x{200D}[^ ])*"
_OPENING = r"[\p{Ps}\p{Pi}\p{Sc}#@\x{A1}\x{BF}]"
_APOSTROPHE = r"['\x{2019}]"
# A word character, then an apostrophe before another word character, a hyphen before a digit, or a number separator.
_INSIDE_WORDS = (
    rf"([^ {_SEAM}]){_SEAM}(?:({_APOSTROPHE}){_SEAM}([^ {_SEAM}])|([-\x{{2010}}\x{{2011}}]){_SEAM}([0-9]))"
    rf"|([0-9]){_SEAM}([.,:]){_SEAM}([0-9])"
)


def normalize(strings: tf.Tensor | Sequence[str | bytes]) -> tf.Tensor:
    """Normalize text to valid UTF-8 on one line, with single spaces and no control or invisible formatting characters.

    Invalid bytes become U+FFFD. Unicode canonical forms stay unchanged, because TensorFlow has no op for them.
    """
    if not isinstance(strings, tf.Tensor):
        # Lone surrogates, which JSON allows and UTF-8 does not, become invalid bytes and so U+FFFD.
        encoded = [text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text for text in strings]
        strings = tf.constant(encoded, tf.string, shape=[len(encoded)])
    text = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="replace")
    text = tf.strings.regex_replace(text, _SPACES, " ")
    text = tf.strings.regex_replace(text, _INVISIBLE, "")
    text = tf.strings.regex_replace(text, JOINER, "\u25a0")  # the full-width form of the same square
    return tf.strings.strip(tf.strings.regex_replace(text, " +", " "))


def tokenize(strings: tf.Tensor | Sequence[str | bytes]) -> tf.RaggedTensor:
    """Return the tokens of each text, `(batch, None)`. A blank text has none.

    Args:
        strings: a tensor `(batch,)`, or a list.
    """
    # Keep the periods after single letters, as in "U.S." and "a.k.a.", in the word.
    stopped = rf"\1{_KEPT_STOP}"
    text = tf.strings.regex_replace(normalize(strings), r"\b([A-Za-z])\.([A-Za-z])\.", stopped + rf"\2{_KEPT_STOP}")
    text = tf.strings.regex_replace(text, rf"({_KEPT_STOP}[A-Za-z])\.", stopped)
    text = tf.strings.regex_replace(text, _IDEOGRAPH, _SEAMED)
    text = tf.strings.regex_replace(text, _PUNCTUATION, _SEAMED)
    for _ in range(2):  # matches that share a character, as in "1,2,3", need two passes
        text = tf.strings.regex_replace(text, _INSIDE_WORDS, r"\1\2\3\4\5\6\7\8")
    text = tf.strings.regex_replace(text, rf"({_APOSTROPHE}[sS])([ {_SEAM}]|$)", _SEAM + r"\1\2")
    text = tf.strings.regex_replace(text, f"{_SEAM}* {_SEAM}*|^{_SEAM}*|{_SEAM}+$", " ")
    text = tf.strings.regex_replace(text, f"{_SEAM}+", _SEAM)
    # Replace each seam by a space, with a joiner mark on the token before or after.
    after, before = rf"\1{JOINER} ", rf" {JOINER}\1"
    text = tf.strings.regex_replace(text, f"({_OPENING}){_SEAM}", after)
    text = tf.strings.regex_replace(text, rf"""( ["'`]){_SEAM}""", after)  # a quote after a space is an opening quote
    text = tf.strings.regex_replace(text, rf"{_SEAM}([\pP\pS])", before)
    text = tf.strings.regex_replace(text, rf"([\pP\pS]){_SEAM}", after)
    text = tf.strings.regex_replace(text, _SEAM, f" {JOINER}")
    return tf.strings.split(tf.strings.regex_replace(text, _KEPT_STOP, "."))


def detokenize(tokens: tf.RaggedTensor | tf.Tensor | Iterable[Iterable[str]]) -> tf.Tensor:
    """Join each list of tokens into text, `(batch,)`. Reverses `tokenize`, up to `normalize`.

    Args:
        tokens: `(batch, None)`, ragged, or padded with empty strings.
    """
    if not isinstance(tokens, (tf.Tensor, tf.RaggedTensor)):
        tokens = tf.ragged.constant(tokens, tf.string, ragged_rank=1)
    text = tf.strings.reduce_join(tokens, axis=-1, separator=" ")
    text = tf.strings.regex_replace(text, " +", " ")
    return tf.strings.strip(tf.strings.regex_replace(text, f" ?{JOINER} ?", ""))


# Stands for the apostrophe of a contraction. No normalized text contains this character.
_KEPT_APOSTROPHE = "\x01"
_CLITICS = "s|m|d|re|ve|ll"


def split_captions(strings: tf.Tensor | Sequence[str | bytes]) -> tf.RaggedTensor:
    """Return the words of each caption, `(batch, None)`, in lowercase and without punctuation.

    Hyphens and apostrophes inside words stay. Contractions become separate words:

        A man's T-shirt (red) doesn't fit.
        a man 's t-shirt red does n't fit

    This suits languages that put spaces between words.

    Args:
        strings: a tensor `(batch,)`, or a list.
    """
    text = tf.strings.lower(normalize(strings), encoding="utf-8")
    text = tf.strings.regex_replace(text, r"\x{2019}", "'")
    text = tf.strings.regex_replace(text, r"[^\pL\pM\pN'-]+|--+|^|$", " ")
    text = tf.strings.regex_replace(text, f" ?'({_CLITICS}) ", rf" {_KEPT_APOSTROPHE}\1 ")
    text = tf.strings.regex_replace(text, " ?n't ", f" n{_KEPT_APOSTROPHE}t ")
    text = tf.strings.regex_replace(text, "[-']* [-' ]*", " ")
    return tf.strings.split(tf.strings.regex_replace(text, _KEPT_APOSTROPHE, "'"))


def join_captions(tokens: tf.RaggedTensor | tf.Tensor | Iterable[Iterable[str]]) -> tf.Tensor:
    """Join the words of each caption with spaces, and contractions without: `(batch,)`.

    Args:
        tokens: `(batch, None)`, ragged, or padded with empty strings.
    """
    return tf.strings.regex_replace(detokenize(tokens), rf" ('(?:{_CLITICS})|n't)( |$)", r"\1\2")


Case = Literal["upper", "lower", "keep"]

_QUOTES = str.maketrans("\u2018\u2019\u02bc\u201c\u201d", "'''\"\"")


def normalize_transcript(text: str, case: Case = "upper", punctuation: bool = False) -> str:
    """Normalize a transcript to one line with single spaces. Its tokens are its characters, spaces included.

    Args:
        case: `"upper"`, `"lower"`, or `"keep"` to leave it unchanged.
        punctuation: whether to keep punctuation. Otherwise hyphens become spaces and the rest is removed. Apostrophes
            within words always stay.
    """
    if case not in get_args(Case):
        raise ValueError(f"`case` must be one of {', '.join(get_args(Case))}. Received: case={case!r}")
    text = unicodedata.normalize("NFC", text).translate(_QUOTES)
    if not punctuation:
        text = re.sub(r"(?<!\w)'|'(?!\w)|[^\w\s']|_", " ", text)
    if case != "keep":
        text = text.upper() if case == "upper" else text.lower()
    return " ".join(text.split())
