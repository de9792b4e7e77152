"""Lowercase words for the model, and restore the case of its output. Graph code of core TensorFlow ops.

The vocabulary keeps the usual spelling of each word ("London", "NASA", "the") for output words that are not in the
source. The encoder reads an out-of-vocabulary word as one of a few classes.

A model can copy out-of-vocabulary words. With a vocabulary of V tokens, id V + s of the extended vocabulary stands for
the unknown word that first occurs at source position s (See et al. 2017, section 2.2). Tokens are `(batch, length)`,
ragged or padded with empty strings.
"""

from collections.abc import Callable

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
    tokens = _padded(tokens)
    token_ids = vocabulary.lookup(tokens)
    copied_ids = len(vocabulary) + _first_positions(tokens)
    return token_ids, tf.where(token_ids == UNKNOWN, copied_ids, token_ids)


def target_ids(
    target_tokens: tf.Tensor | tf.RaggedTensor, source_tokens: tf.Tensor | tf.RaggedTensor, vocabulary: Vocabulary
) -> tf.Tensor:
    """Return ids of the extended vocabulary, int32 `(batch, target)`. Unknown words not in the source are `<unk>`."""
    target_tokens, source_tokens = _padded(target_tokens), _padded(source_tokens)
    source_length = tf.shape(source_tokens)[1]
    positions = _first_positions(tf.concat([source_tokens, target_tokens], axis=1))[:, source_length:]  # (B, T)
    token_ids = vocabulary.lookup(target_tokens)
    can_be_copied = (token_ids == UNKNOWN) & (positions < source_length)
    return tf.where(can_be_copied, len(vocabulary) + positions, token_ids)


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
    spelled = tf.constant(["" if token in SPECIAL_TOKENS[:UNKNOWN] else token for token in vocabulary.tokens])
    source_tokens = _padded(source_tokens)
    source_length = tf.shape(source_tokens)[1]
    source_tokens = tf.concat([source_tokens, tf.fill([tf.shape(source_tokens)[0], 1], "")], axis=1)
    positions = tf.clip_by_value(token_ids - size, 0, source_length)
    copied = token_ids >= size
    words = tf.gather(spelled, tf.where(copied, 0, token_ids))
    return tf.where(copied, tf.gather(source_tokens, positions, batch_dims=1), words), copied


def _padded(tokens: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
    return tokens.to_tensor("") if isinstance(tokens, tf.RaggedTensor) else tokens


def _first_positions(tokens: tf.Tensor) -> tf.Tensor:
    """Return the first position of each token in its row, int32 `(batch, length)`.

    Tokens are compared by 64-bit fingerprints in one pass. Comparing every pair of strings is far slower.
    """
    shape = tf.shape(tokens)
    fingerprints = tf.strings.to_hash_bucket_fast(tokens, _LARGEST_FINGERPRINT)
    rows = tf.range(tf.cast(shape[0], tf.int64))[:, tf.newaxis]
    _, kinds = tf.unique(tf.reshape(fingerprints + rows * _ROW_STEP, [-1]))
    positions = tf.reshape(tf.broadcast_to(tf.range(shape[1]), shape), [-1])
    first = tf.math.unsorted_segment_min(positions, kinds, tf.size(positions))
    return tf.reshape(tf.gather(first, kinds), shape)
