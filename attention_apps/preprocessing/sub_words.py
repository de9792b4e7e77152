"""Encode texts as sub-words and decode them.

`SubWords` has the pieces of a SentencePiece model. `WordPieces` has pieces that we learned, and is graph code.
"""

import io
import itertools
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import tensorflow as tf

from attention_apps.constants import SPECIAL_TOKENS, UNKNOWN
from attention_apps.preprocessing.text import JOINER, detokenize, normalize, tokenize
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
        self._ids, self._spellings = {}, []
        for index, piece in enumerate(vocabulary.tokens):
            byte, spelling = _BYTE.fullmatch(piece), b""
            if piece not in SPECIAL_TOKENS and not _UNUSED.fullmatch(piece):
                self._ids[piece] = index
                spelling = bytes([int(byte[1], 16)]) if byte else piece.replace(_SPACE, " ").encode("utf-8")
            self._spellings.append(spelling)
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
                break
            first = joined.index(best)
            pieces[first : first + 2] = [pieces[first] + pieces[first + 1]]
        ids: list[int] = []
        for piece in pieces:
            if piece in self._ids:
                ids.append(self._ids[piece])
            else:
                ids.extend(self._ids.get(f"<0x{byte:02X}>", UNKNOWN) for byte in piece.encode("utf-8"))
        return tuple(ids)


# Longer words are cut, so that a word never has more pieces than the graph can follow.
MAX_LETTERS = 40
WORD_START = "\u2581"  # ▁, with which the first piece of each word begins
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
# Elided words of French, as in "l'eau" and "qu'il", are words of their own.
_ELISION = r"^([CDJLMNSTcdjlmnst]|[Qq]u)(['\x{2019}])(\pL)"
# The share of the letters of a corpus that are pieces of their own. The others are spelled in bytes.
_COVERAGE = 0.9998
_MAX_PIECE = 16
# Each doubling follows twice as many pieces of a word; a word has a start, its letters, and one joiner mark.
_DOUBLINGS = (MAX_LETTERS + 2).bit_length()


def split_words(strings: tf.Tensor | Sequence[str | bytes]) -> tf.RaggedTensor:
    """Return the words and punctuation of each text with joiner marks, as `text.tokenize`.

    Very long words are cut, and so are French elisions: "l'eau" becomes "l'￭" and "eau".
    """
    words = tokenize(strings)
    cut = tf.strings.regex_replace(words.flat_values, _ELISION, rf"\1\2{JOINER} \3")
    cut = tf.strings.regex_replace(cut, f"([^ ]{{{MAX_LETTERS}}})", rf"\1 {JOINER}")
    cut = tf.strings.split(tf.strings.regex_replace(cut, f" {JOINER}$", ""))
    return words.with_values(cut).merge_dims(1, 2)


class WordPieces:
    """Pieces of words: from the left, always the longest piece of the vocabulary.

    The first piece of a word begins with `▁`. A character without a piece becomes the bytes of its UTF-8 form, so that
    every word can be read and written.

    Args:
        vocabulary: from `learn_word_pieces`.

    Example:
        pieces = WordPieces(vocabulary)
        ids = pieces.segment(tf.constant(["Straßen", "￭."]))   # ragged: [[▁Straße, n], [▁￭.]]
        pieces.join(ids.merge_dims(0, 1)[tf.newaxis])          # ["Straßen."]
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        missing = [piece for piece in (WORD_START, *BYTES) if piece not in vocabulary]
        if missing:
            raise ValueError(f"A vocabulary of word pieces must have {missing[0]!r}.")
        self.sub_words = SubWords(vocabulary)
        self.starts_word = [piece.startswith(WORD_START) for piece in vocabulary.tokens]
        ids = {piece: index for index, piece in enumerate(vocabulary.tokens)}
        self._max_piece = min(max(map(len, vocabulary.words)), MAX_LETTERS)
        known = {piece: index for piece, index in ids.items() if piece not in {*SPECIAL_TOKENS, *BYTES}}
        self._pieces = _table(list(known), list(known.values()))
        self._bytes = _table([bytes([byte]) for byte in range(256)], [ids[name] for name in BYTES])
        self.resources = (self._pieces, self._bytes)

    def segment(self, words: tf.Tensor, dropout: float = 0.0, seed: int = 0) -> tf.RaggedTensor:
        """Return the ids of the pieces of words `(words,)` from `split_words`, int32 `(words, None)`.

        Args:
            dropout: the probability with which a piece of several letters is passed over, for training with many
                segmentations of the same word (Hiraoka 2022, "MaxMatch-Dropout").
            seed: of these random choices.
        """
        words = tf.strings.regex_replace(words, WORD_START, "_")
        letters = tf.strings.unicode_split(WORD_START + words, "UTF-8")
        flat, ends = letters.flat_values, tf.gather(letters.row_limits(), letters.value_rowids())
        ids, lengths = self._longest(flat, ends, dropout, seed)
        starts = _follow(letters.row_starts(), tf.range(tf.size(flat, tf.int64)) + tf.maximum(lengths, 1))
        places = tf.where(starts)[:, 0]
        is_known = tf.gather(lengths, places) > 0
        pieces = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(tf.gather(ids, places), is_known), tf.cast(is_known, tf.int64)
        )
        spelled = tf.strings.bytes_split(tf.where(is_known, "", tf.gather(flat, places)))
        pieces = tf.concat([pieces, spelled.with_values(self._bytes.lookup(spelled.values))], axis=1)
        words_of_places = tf.gather(letters.value_rowids(), places)
        return tf.RaggedTensor.from_value_rowids(pieces, words_of_places, letters.nrows()).merge_dims(1, 2)

    def join(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Convert ids `(..., time)` to texts `(...,)`."""
        words = self.sub_words.decode(token_ids)
        return normalize(detokenize(words[..., tf.newaxis]))

    def _longest(self, letters: tf.Tensor, ends: tf.Tensor, dropout: float, seed: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the id and the length of the longest piece at each letter; the length is 0 where there is none."""
        places = tf.range(tf.size(letters, tf.int64))
        padded = tf.concat([letters, tf.fill([self._max_piece], "")], axis=0)
        grams, ids, lengths = letters, tf.zeros_like(places, tf.int32), tf.zeros_like(places)
        for length in range(1, self._max_piece + 1):
            found = self._pieces.lookup(grams)
            fits = (found > 0) & (places + length <= ends)
            if dropout and length > 1:
                fits &= tf.random.stateless_uniform(tf.shape(letters), (seed, length)) >= dropout
            ids, lengths = tf.where(fits, found, ids), tf.where(fits, tf.constant(length, tf.int64), lengths)
            grams = grams + padded[length : length + tf.size(letters)]
        return ids, lengths


def learn_word_pieces(sentences: Iterable[Sequence[str]], size: int) -> Vocabulary:
    """Learn a vocabulary of frequent pieces by byte-pair encoding, after all 256 bytes (Sennrich et al. 2016).

    Args:
        sentences: lists of words as `split_words` gives them.
        size: of the whole vocabulary; it is smaller if the sentences have fewer pieces.
    """
    import sentencepiece

    least = len(SPECIAL_TOKENS) + len(BYTES)
    if size <= least:
        raise ValueError(f"`size` must be more than {least}, for all bytes. Received: size={size}")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(" ".join(words).replace(WORD_START, "_") for words in sentences),
            model_writer=model,
            model_type="bpe",
            vocab_size=size - least + 1,  # the unknown piece, which sentencepiece insists on, is left out below
            character_coverage=_COVERAGE,
            normalization_rule_name="identity",
            split_by_unicode_script=False,
            split_by_number=False,
            max_sentencepiece_length=_MAX_PIECE,
            hard_vocab_limit=False,
            bos_id=-1,
            eos_id=-1,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(f"Word pieces cannot be learned, perhaps `size` is too small. Received: {size=}") from error
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [processor.id_to_piece(index) for index in range(len(processor)) if not processor.is_unknown(index)]
    return Vocabulary(dict.fromkeys([*BYTES, WORD_START, *pieces]))


def _follow(starts: tf.Tensor, following: tf.Tensor) -> tf.Tensor:
    """Return which places are reached from the starts, where each place leads to a following one.

    A path that leaves its word goes on with the first place of the next word, which is reached anyway.
    """
    end = tf.size(following, tf.int64)
    following = tf.concat([following, [end]], axis=0)
    reached, places = tf.fill([end + 1], False), starts
    for _ in range(_DOUBLINGS + 1):
        reached = tf.tensor_scatter_nd_update(reached, places[:, tf.newaxis], tf.fill([tf.size(places)], True))
        places = tf.boolean_mask(following, reached)
        following = tf.gather(following, following)
    return reached[:-1]


def _table(keys: Sequence[str | bytes], values: Sequence[int]) -> tf.lookup.StaticHashTable:
    with tf.init_scope():
        entries = tf.lookup.KeyValueTensorInitializer(tf.constant(keys), tf.constant(values, tf.int32))
        return tf.lookup.StaticHashTable(entries, 0)
