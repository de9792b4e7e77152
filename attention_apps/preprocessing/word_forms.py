"""Lowercase words for the model, restore the case of its output, and count the words of a corpus in both forms.

All but `TextCorpus` is graph code of core TensorFlow ops. The vocabulary keeps the usual spelling of each word
("London", "NASA", "the") for output words that are not in the source. The encoder reads an out-of-vocabulary word as
one of a few classes.

A model can copy out-of-vocabulary words. With a vocabulary of V tokens, id V + s of the extended vocabulary stands for
the unknown word that first occurs at source position s (See et al. 2017, section 2.2). Tokens are `(batch, length)`,
ragged or padded with empty strings.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from attention_apps.constants import SPECIAL_TOKENS, UNKNOWN
from attention_apps.preprocessing.text import JOINER
from attention_apps.preprocessing.vocabulary import Vocabulary

# The encoder reads an out-of-vocabulary word as the first class that matches. No real token equals a class name.
UNKNOWN_CLASSES = {
    "<number>": r".*[0-9].*",
    "<UPPER>": r"[\p{Lu}\pP]*\p{Lu}[\p{Lu}\pP]+",
    "<Title>": r"\p{Lu}.*",
    "<-ing>": r".*ing",
    "<-ed>": r".*ed",
    "<-s>": r".*s",
    "<-ly>": r".*ly",
}
# The ids of the classes follow those of the special tokens.
FIRST_CLASS = UNKNOWN + 1
UNKNOWN_CLASS_IDS = tuple(range(FIRST_CLASS, FIRST_CLASS + len(UNKNOWN_CLASSES)))

_ENDS = rf"{JOINER}?(?:[.?!:;\x{{2026}}\x{{3002}}]|\.\.+){JOINER}?"
_OPENS = rf"(?:[\p{{Ps}}\p{{Pi}}\"'`\-\x{{2013}}\x{{2014}}]|\x{{2022}}){JOINER}?"
_FULL_STOPS = rf"{JOINER}?[.?!]{JOINER}?"
_SHOUTED = r"\p{Lu}{4,}"


def lowercase(tokens: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
    """Convert tokens to lowercase."""
    if isinstance(tokens, tf.RaggedTensor):
        return tokens.with_flat_values(lowercase(tokens.flat_values))
    return tf.strings.lower(tokens, encoding="utf-8")


def unknown_class_ids(tokens: tf.Tensor) -> tf.Tensor:
    """Return the id of each token's class, or the id of `<unk>` if no class matches."""
    ids = tf.fill(tf.shape(tokens), UNKNOWN)
    for number, pattern in reversed(list(zip(UNKNOWN_CLASS_IDS, UNKNOWN_CLASSES.values(), strict=True))):
        ids = tf.where(tf.strings.regex_full_match(tokens, pattern), number, ids)
    return ids


def restore_case(
    token_ids: tf.Tensor, source_ids: tf.Tensor, source_tokens: tf.Tensor, vocabulary: Vocabulary
) -> tuple[tf.Tensor, tf.Tensor]:
    """Convert ids of the extended vocabulary to words, in the case that they have inside a source sentence.

    The first word of a source sentence does not count, because it is always capitalized. Words without such a source
    position get the usual spelling of the vocabulary. Each output sentence starts with a capital.

    Args:
        token_ids: `(batch, beams, target)`.
        source_ids: `(batch, source)`, ids of the extended vocabulary, padded with 0.
        source_tokens: `(batch, source)`, padded with empty strings.

    Returns:
        The words, and a mask of those copied from unknown source words, both shaped like `token_ids`.
    """
    words, copied = resolve(token_ids, source_tokens, vocabulary)
    telling = inside_sentences(source_tokens) & ~tf.strings.regex_full_match(source_tokens, _SHOUTED)  # (B, S)
    same = (token_ids[..., tf.newaxis] == source_ids[:, tf.newaxis, tf.newaxis]) & telling[:, tf.newaxis, tf.newaxis]
    same &= token_ids[..., tf.newaxis] > UNKNOWN  # (B, K, T, S)
    positions = tf.argmax(tf.cast(same, tf.int32), axis=-1, output_type=tf.int32)
    words = tf.where(tf.reduce_any(same, axis=-1), tf.gather(source_tokens, positions, batch_dims=1), words)
    before = _before(words)
    opened = tf.strings.regex_full_match(before, _OPENS) & (_before(before) == "")
    begins = (before == "") | opened | tf.strings.regex_full_match(before, _FULL_STOPS)
    # Words that already contain a capital, like iPhone, stay unchanged.
    is_small = (words != "") & ~tf.strings.regex_full_match(words, r".*\p{Lu}.*")
    first = tf.strings.upper(tf.strings.substr(words, 0, 1, unit="UTF8_CHAR"), encoding="utf-8")
    capitalized = tf.strings.join([first, tf.strings.regex_replace(words, r"^(?s:.)", "")])
    return tf.where(begins & is_small, capitalized, words), copied


def _before(tokens: tf.Tensor) -> tf.Tensor:
    """Return the token before each token, and an empty string for the first."""
    first = tf.fill(tf.concat([tf.shape(tokens)[:-1], [1]], axis=0), "")
    return tf.concat([first, tokens[..., :-1]], axis=-1)


def inside_sentences(tokens: tf.Tensor) -> tf.Tensor:
    """Return which words do not start a sentence, so that a capital belongs to the word itself."""
    before = _before(tokens)
    begins = (before == "") | tf.strings.regex_full_match(before, _ENDS) | tf.strings.regex_full_match(before, _OPENS)
    return (tokens != "") & ~begins


def to_model_forms(vocabulary: Vocabulary, model_form: Callable[[tf.Tensor], tf.Tensor] = lowercase) -> Vocabulary:
    """Return the vocabulary in the forms that the model sees, lowercase by default. Tokens are looked up in it."""
    first = FIRST_CLASS + len(UNKNOWN_CLASSES)
    if tuple(vocabulary.tokens[FIRST_CLASS:first]) != tuple(UNKNOWN_CLASSES):
        received = ", ".join(vocabulary.tokens[FIRST_CLASS:first])
        raise ValueError(
            f"The first words of the vocabulary must be {', '.join(UNKNOWN_CLASSES)}. Received: {received}"
        )
    spellings = tf.constant(vocabulary.tokens[first:], tf.string, shape=[len(vocabulary) - first])
    return Vocabulary(
        [*vocabulary.tokens[UNKNOWN + 1 : first], *(form.decode() for form in model_form(spellings).numpy())]
    )


_LARGEST_FINGERPRINT = 2**63 - 1
_ROW_STEP = -7046029254386353131  # 2^64 over the golden ratio, as a signed number: keeps rows apart


def source_ids(tokens: tf.Tensor | tf.RaggedTensor, vocabulary: Vocabulary) -> tuple[tf.Tensor, tf.Tensor]:
    """Return ids for the encoder, where unknown words are `<unk>`, and ids of the extended vocabulary, for copying.

    Returns:
        Two int32 tensors `(batch, source)`, padded with 0.
    """
    tokens = tokens.to_tensor("") if isinstance(tokens, tf.RaggedTensor) else tokens
    token_ids = vocabulary.lookup(tokens)
    # The first position of each token in its row, by 64-bit fingerprints: comparing pairs of strings is far slower.
    shape = tf.shape(tokens)
    fingerprints = tf.strings.to_hash_bucket_fast(tokens, _LARGEST_FINGERPRINT)
    rows = tf.range(tf.cast(shape[0], tf.int64))[:, tf.newaxis]
    _, kinds = tf.unique(tf.reshape(fingerprints + rows * _ROW_STEP, [-1]))
    positions = tf.reshape(tf.broadcast_to(tf.range(shape[1]), shape), [-1])
    first = tf.gather(tf.math.unsorted_segment_min(positions, kinds, tf.size(positions)), kinds)
    return token_ids, tf.where(token_ids == UNKNOWN, len(vocabulary) + tf.reshape(first, shape), token_ids)


def resolve(
    token_ids: tf.Tensor, source_tokens: tf.Tensor | tf.RaggedTensor, vocabulary: Vocabulary
) -> tuple[tf.Tensor, tf.Tensor]:
    """Convert ids of the extended vocabulary to tokens. Padding, start and end become empty strings.

    Args:
        token_ids: `(batch, target)` or `(batch, beams, target)`.

    Returns:
        The tokens, and a mask of those copied from unknown source words, both shaped like `token_ids`.
    """
    size = len(vocabulary)
    source_tokens = source_tokens.to_tensor("") if isinstance(source_tokens, tf.RaggedTensor) else source_tokens
    source_length = tf.shape(source_tokens)[1]
    source_tokens = tf.concat([source_tokens, tf.fill([tf.shape(source_tokens)[0], 1], "")], axis=1)
    positions = tf.clip_by_value(token_ids - size, 0, source_length)
    copied = token_ids >= size
    words = vocabulary.strings(tf.where(copied, 0, token_ids))
    return tf.where(copied, tf.gather(source_tokens, positions, batch_dims=1), words), copied


# The number of texts that are tokenized, or looked through, at a time.
_CHUNK = 4096


def tokens_of(texts: Sequence[str], tokenize: Callable[[Sequence[str]], tf.RaggedTensor]) -> Iterator[list[bytes]]:
    """Yield the tokens of each text. Texts are tokenized in large batches."""
    for first in range(0, len(texts), _CHUNK):
        yield from tokenize(texts[first : first + _CHUNK]).to_list()


class TextColumn:
    """The texts of one column: the concatenated token indices of all texts, and where each text begins."""

    def __init__(self, codes: np.ndarray, lengths: np.ndarray):
        self.codes = codes
        self.lengths = lengths
        self.starts = np.concatenate([[0], np.cumsum(lengths)])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.codes[self.starts[index] : self.starts[index + 1]]


class TextCorpus:
    """Documents and summaries that share one table of words.

    Args:
        documents, summaries: the tokens of each text.
        model_form: graph code that converts tokens to the forms that the model sees.

    Attributes:
        words: the distinct tokens in their original spelling.
        documents, summaries: `TextColumn`s of indices into `words`.
        forms: the distinct forms.
        form_of: the index of each word's form.
    """

    def __init__(
        self,
        documents: Iterable[Sequence[bytes]],
        summaries: Iterable[Sequence[bytes]],
        model_form: Callable[[tf.Tensor], tf.Tensor] = lowercase,
    ):
        table: dict[bytes, int] = {}
        columns = []
        for texts in (documents, summaries):
            codes, lengths = [np.zeros(0, np.int32)], []
            for tokens in texts:
                codes.append(np.array([table.setdefault(token, len(table)) for token in tokens], np.int32))
                lengths.append(len(tokens))
            columns.append(TextColumn(np.concatenate(codes), np.array(lengths, np.int64)))
        self.documents, self.summaries = columns
        self.words = [word.decode() for word in table]
        self._table = tf.constant(self.words, tf.string, shape=[len(self.words)])
        forms: dict[str, int] = {}
        names = [form.decode() for form in model_form(self._table).numpy()]
        self.form_of = np.array([forms.setdefault(form, len(forms)) for form in names], np.int32)
        self.forms = list(forms)

    def make_vocabulary(self, size: int, min_count: int = 1) -> Vocabulary:
        """Return the most frequent forms in their usual spelling, after the classes of out-of-vocabulary words."""
        columns = (self.documents, self.summaries)
        counts = sum(np.bincount(column.codes, minlength=len(self.words)) for column in columns)
        totals = np.bincount(self.form_of, counts, len(self.forms)).astype(np.int64)
        order = sorted(range(len(self.forms)), key=lambda form: (-totals[form], self.forms[form]))
        spellings = self._usual_spellings(counts)
        special = {*SPECIAL_TOKENS, *UNKNOWN_CLASSES}
        chosen = [spellings[form] for form in order if totals[form] >= min_count and self.forms[form] not in special]
        return Vocabulary([*UNKNOWN_CLASSES, *chosen[: max(size - FIRST_CLASS - len(UNKNOWN_CLASSES), 0)]])

    def word_ids(self, vocabulary: Vocabulary) -> np.ndarray:
        """Return the id of each word in a vocabulary of forms. Out-of-vocabulary words have the id of `<unk>`."""
        return np.array(vocabulary.encode(self.forms), np.int32)[self.form_of]

    def encoder_ids(self, vocabulary: Vocabulary, by_form: bool = False) -> np.ndarray:
        """Return `word_ids`, but with the id of its class for each out-of-vocabulary word.

        Args:
            by_form: whether to classify the form instead of the original spelling.
        """
        ids = self.word_ids(vocabulary)
        words = tf.gather(tf.constant(self.forms), self.form_of) if by_form else self._table
        return np.where(ids == UNKNOWN, unknown_class_ids(words).numpy(), ids).astype(np.int32)

    def _usual_spellings(self, counts):
        """Return the most frequent spelling of each form, counted inside document sentences if it occurs there."""
        inside = np.zeros(len(self.words), np.int64)
        starts = self.documents.starts
        for first in range(0, len(self.documents), _CHUNK):
            lengths = self.documents.lengths[first : first + _CHUNK]
            codes = self.documents.codes[starts[first] : starts[first + len(lengths)]]
            tokens = tf.RaggedTensor.from_row_lengths(tf.gather(self._table, codes), lengths).to_tensor("")
            is_token = np.arange(tokens.shape[1]) < lengths[:, None]
            is_inside = inside_sentences(tokens).numpy()[is_token]
            inside += np.bincount(codes[is_inside], minlength=len(self.words))
        best: dict[int, tuple] = {}
        for code, form in enumerate(self.form_of.tolist()):
            rank = (inside[code], counts[code], self.words[code])
            if form not in best or rank > best[form]:
                best[form] = rank
        return [best[form][2] for form in range(len(self.forms))]
