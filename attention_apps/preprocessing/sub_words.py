"""Encode texts as sub-words and decode them."""

import itertools
import re
from collections.abc import Iterable
from functools import lru_cache

import tensorflow as tf

from attention_apps.constants import SPECIAL_TOKENS, UNKNOWN
from attention_apps.preprocessing.vocabulary import Vocabulary

_SPACE = "\u2581"  # ▁, the space of SentencePiece vocabularies
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_UNUSED = re.compile(r"<unused_\d+>")
_CACHED_WORDS = 50_000


class SubWords:
    """Byte-pair encoding with the vocabulary of a SentencePiece model, as in Llama and Moonshine.

    The vocabulary alone determines the encoding: the two neighbors that form the piece with the lowest id are merged
    first. Characters without a piece become UTF-8 bytes, pieces like `<0xC3>`. No piece contains an inner space, so
    words are encoded one at a time.

    Args:
        vocabulary: the pieces, with `▁` for a space. Pieces like `<unused_7>` are ignored.

    Example:
        sub_words = SubWords(Vocabulary.load("vocabulary.txt"))
        sub_words.encode("Hello there.")            # [15043, 727, 29889]
        sub_words.decode([[15043, 727, 29889, 2]])  # a string tensor: ["Hello there."]
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._ids = {piece: index for index, piece in enumerate(vocabulary.tokens) if not _is_silent(piece)}
        self._spellings = [_spell(piece) for piece in vocabulary.tokens]
        self._encode_word = lru_cache(_CACHED_WORDS)(self._merge)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without start and end. Consecutive white space counts as one space."""
        return [index for word in text.split() for index in self._encode_word(_SPACE + word)]

    def decode(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Convert ids `(..., time)` to texts `(...,)`, in core TensorFlow ops.

        Padding, start, end and one leading space are dropped. Invalid UTF-8 becomes replacement characters.
        """
        texts = tf.strings.reduce_join(self.spell(token_ids), axis=-1)
        texts = tf.strings.regex_replace(texts, "^ ", "", replace_global=False)
        return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")

    def spell(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Return the bytes that each id adds to the text: empty for padding, start and end."""
        return tf.gather(tf.constant(self._spellings), token_ids)

    def _merge(self, word: str) -> tuple[int, ...]:
        pieces, none = list(word), len(self.vocabulary)
        while True:
            joined = [self._ids.get(one + other, none) for one, other in itertools.pairwise(pieces)]
            best = min(joined, default=none)
            if best == none:
                return tuple(self._look_up(pieces))
            first = joined.index(best)
            pieces[first : first + 2] = [pieces[first] + pieces[first + 1]]

    def _look_up(self, pieces: Iterable[str]) -> Iterable[int]:
        for piece in pieces:
            if piece in self._ids:
                yield self._ids[piece]
            else:
                yield from (self._ids.get(f"<0x{byte:02X}>", UNKNOWN) for byte in piece.encode("utf-8"))


def _is_silent(piece: str) -> bool:
    return piece in SPECIAL_TOKENS or _UNUSED.fullmatch(piece) is not None


def _spell(piece: str) -> bytes:
    byte = _BYTE.fullmatch(piece)
    if byte is not None:
        return bytes([int(byte.group(1), 16)])
    return b"" if _is_silent(piece) else piece.replace(_SPACE, " ").encode("utf-8")
