"""The mapping between words and ids."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import tensorflow as tf

from attention_apps.constants import END, PADDING, SPECIAL_TOKENS, START, UNKNOWN

_MAX_ENTRIES = 1_000_000
_MAX_BYTES = 64 * 2**20
_MAX_WORD = 1000
_REFUSED_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")  # controls, surrogates, line and paragraph separators


class Vocabulary:
    """A fixed list of tokens, numbered from 0: four special ones, then the words.

    Ids 0 to 3 are padding `<pad>`, start `<start>`, end `<end>` and unknown `<unk>`.

    Args:
        words: distinct words, which get the ids from 4 on.

    Attributes:
        tokens: all tokens in the order of their ids.
        words: the tokens without the special ones.

    Example:
        vocabulary = Vocabulary.build([["a", "dog"], ["a", "cat"]], max_size=6)
        vocabulary.encode(["a", "bird"])       # [4, 3]
        vocabulary.lookup(tf.constant(["a"]))  # [4], in graph code too
    """

    def __init__(self, words: Iterable[str]):
        words = list(words)
        if len(words) + len(SPECIAL_TOKENS) > _MAX_ENTRIES:
            raise ValueError(f"A vocabulary holds at most {_MAX_ENTRIES} tokens. Received: {len(words)} words")
        self._ids = {token: index for index, token in enumerate(SPECIAL_TOKENS)}
        for word in words:
            problem = _problem(word) or ("is a duplicate" if word in self._ids else None)
            if problem:
                line = len(self._ids) + 1  # of the saved file, where the special tokens come first
                raise ValueError(f"Token {line} of the vocabulary {problem}. Received: {str(word)[:80]!r}")
            self._ids[word] = len(self._ids)
        self.words = tuple(words)
        self.tokens = (*SPECIAL_TOKENS, *words)

    @classmethod
    def build(
        cls,
        tokens: Iterable[Iterable[str]] | Counter,
        min_count: int = 1,
        max_size: int | None = None,
    ) -> Self:
        """Build a vocabulary of the most frequent words. Ties are sorted alphabetically.

        Args:
            tokens: lists of tokens, or a count for each word.
            min_count: drop words that occur less often.
            max_size: the size of the whole vocabulary, with the four special tokens.
        """
        if min_count < 1:
            raise ValueError(f"`min_count` must be at least 1. Received: min_count={min_count}")
        if max_size is not None and max_size < len(SPECIAL_TOKENS):
            raise ValueError(f"`max_size` must be at least {len(SPECIAL_TOKENS)}. Received: max_size={max_size}")
        counts = tokens if isinstance(tokens, Counter) else Counter(word for words in tokens for word in words)
        frequent = [word for word, count in counts.items() if count >= min_count and word not in SPECIAL_TOKENS]
        frequent.sort(key=lambda word: (-counts[word], word))
        return cls(frequent if max_size is None else frequent[: max_size - len(SPECIAL_TOKENS)])

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file written by `save`. A bad file raises an error that names the line."""
        path = Path(path)
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise ValueError(f"{path} is too large for a vocabulary: {size} bytes, limit {_MAX_BYTES}")
        try:
            return cls.from_text(path.read_bytes().decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 text: {error}") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read the output of `to_text`: one token per line."""
        lines = text.removesuffix("\n").split("\n")
        if tuple(lines[: len(SPECIAL_TOKENS)]) != SPECIAL_TOKENS:
            raise ValueError(f"This is not a vocabulary: its first lines must be {', '.join(SPECIAL_TOKENS)}")
        return cls(lines[len(SPECIAL_TOKENS) :])

    def to_text(self) -> str:
        """Return one token per line, in the order of the ids."""
        return "".join(f"{token}\n" for token in self.tokens)

    def save(self, path: str | Path) -> None:
        """Write a UTF-8 text file with one token per line, in the order of the ids."""
        Path(path).write_bytes(self.to_text().encode("utf-8"))

    def grow(self, words: Iterable[str]) -> Self:
        """Return a vocabulary with additional words. Existing words keep their ids."""
        new = [word for word in dict.fromkeys(words) if word not in self._ids]
        return type(self)([*self.words, *new])

    def unknown_rate(self, texts: Iterable[Iterable[str]]) -> float:
        """Return the fraction of out-of-vocabulary tokens in texts, from 0 to 1."""
        known = [token in self._ids for tokens in texts for token in tokens]
        return known.count(False) / max(len(known), 1)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Return the ids of tokens. Out-of-vocabulary tokens have the id of `<unk>`."""
        return [self._ids.get(token, UNKNOWN) for token in tokens]

    def decode(self, token_ids: Sequence[int]) -> list[str]:
        """Return the tokens of ids, without padding, start and end."""
        for index in token_ids:
            if not 0 <= index < len(self):
                raise ValueError(f"`token_ids` must be from 0 to {len(self) - 1}. Received: {index}")
        return [self.tokens[index] for index in token_ids if index not in (PADDING, START, END)]

    def lookup(self, tokens: tf.Tensor) -> tf.Tensor:
        """Return the int32 ids of a string tensor, in graph code. The empty string is padding."""
        return self.table.lookup(tokens)

    def strings(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Return the tokens of a tensor of ids, in graph code. Padding, start and end are empty strings."""
        return tf.gather(
            tf.constant(["" if index <= END else token for index, token in enumerate(self.tokens)]), token_ids
        )

    @cached_property
    def table(self) -> tf.lookup.StaticHashTable:
        """The table that `lookup` uses. A saved `tf.Module` must hold it as an attribute."""
        with tf.init_scope():
            keys = tf.constant([*self.tokens, ""])
            values = tf.constant([*range(len(self)), PADDING], tf.int32)
            return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), UNKNOWN)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.tokens == other.tokens

    def __hash__(self) -> int:
        return hash(self.tokens)

    def __repr__(self) -> str:
        return f"<Vocabulary of {len(self)} tokens>"


def _problem(word: str) -> str | None:
    if not isinstance(word, str):
        return "must be a string"
    if not word:
        return "must not be empty"
    if len(word) > _MAX_WORD:
        return f"must have at most {_MAX_WORD:,} characters"
    if any(unicodedata.category(character) in _REFUSED_CATEGORIES for character in word):
        return "must not contain control characters or line breaks"
    return None
