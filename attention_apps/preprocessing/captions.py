"""Split captions into words and join them again, in graph code of core TensorFlow ops.

Text becomes lowercase and loses its punctuation. Hyphens and apostrophes inside words stay. Contractions become
separate words:

    A man's T-shirt (red) doesn't fit.
    a man 's t-shirt red does n't fit

This suits languages that put spaces between words.
"""

from collections.abc import Iterable, Sequence

import tensorflow as tf

from attention_apps.preprocessing.text import detokenize as join_tokens
from attention_apps.preprocessing.text import normalize

# Stands for the apostrophe of a contraction. No normalized text contains this character.
_KEPT = "\x01"
_CLITICS = "s|m|d|re|ve|ll"


def tokenize(strings: tf.Tensor | Sequence[str | bytes]) -> tf.RaggedTensor:
    """Return the words of each caption, `(batch, None)`.

    Args:
        strings: a tensor `(batch,)`, or a list.
    """
    text = tf.strings.lower(normalize(strings), encoding="utf-8")
    text = tf.strings.regex_replace(text, r"\x{2019}", "'")
    text = tf.strings.regex_replace(text, r"[^\pL\pM\pN'-]+|--+|^|$", " ")
    text = tf.strings.regex_replace(text, f" ?'({_CLITICS}) ", rf" {_KEPT}\1 ")
    text = tf.strings.regex_replace(text, " ?n't ", f" n{_KEPT}t ")
    text = tf.strings.regex_replace(text, "[-']* [-' ]*", " ")
    return tf.strings.split(tf.strings.regex_replace(text, _KEPT, "'"))


def detokenize(tokens: tf.RaggedTensor | tf.Tensor | Iterable[Iterable[str]]) -> tf.Tensor:
    """Join the words of each caption with spaces, and contractions without: `(batch,)`.

    Args:
        tokens: `(batch, None)`, ragged, or padded with empty strings.
    """
    return tf.strings.regex_replace(join_tokens(tokens), rf" ('(?:{_CLITICS})|n't)( |$)", r"\1\2")
