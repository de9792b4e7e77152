"""Read texts as passages of tokens."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from attention_apps.applications.parts import RawInput, Reading, Source, Tensors
from attention_apps.applications.summarization.config import SummaryOptions
from attention_apps.preprocessing import text
from attention_apps.preprocessing.sentences import count_words, first_passage_lengths, sentence_starts
from attention_apps.preprocessing.text import JOINER, normalize
from attention_apps.serving import DEFAULT_SIGNATURE

# The status of a text: summarized; only its first passage summarized; too short, so it is its own summary; blank;
# longer than an exported model reads.
OK, CUT, SHORT, BLANK, TOO_LONG = "ok", "cut", "short", "blank", "text too long"
# A text of fewer words is its own summary.
MIN_WORDS = 4
# The longest text that an exported model reads.
MAX_TEXT_BYTES = 1 << 17
_EXAMPLE = "Yesterday in the morning, somebody saw something in the old town. It was reported by the police."

# The first token of a sentence or passage, and the token after its last.
Span = tuple[int, int]
Tokenize = Callable[[tf.Tensor | Sequence[str | bytes]], tf.RaggedTensor]


@dataclass(frozen=True, eq=False)
class TextShown:
    """A text for display in its result: on one line, and as tokens."""

    plain: str
    tokens: list[str]


class TextReader:
    """Reads strings or UTF-8 bytes. Of a text that is too long for the model, the first sentences that fit are read.

    With `sentences=N`, N sentences from all over the text are read, each on its own; see `lead_sentences`.

    Args:
        tokenize: graph code that converts strings to tokens, by default that of the class.
    """

    tokenize: Tokenize = staticmethod(text.tokenize)
    # Whether all sentences are read, each on its own, and longer ones than the model reads in pieces.
    reads_all = False
    # What an exported model reads, for its card.
    note = f"texts of at most {MAX_TEXT_BYTES:,} bytes of UTF-8; invalid bytes are read as U+FFFD"

    max_batch_length = float("inf")
    signature: ClassVar[Mapping[str, tf.TensorSpec]] = {"tokens": tf.TensorSpec((None, None), tf.string)}

    def __init__(self, config: Any, tokenize: Tokenize | None = None):
        self.max_length = config.max_source_length
        self.tokenize = tokenize or self.tokenize

    def read(self, item: Any, options: SummaryOptions) -> Reading:
        text = read_text(item, self.tokenize)
        length = self.max_length
        if options.sentences is None or (options.sentences == 1 and not self.reads_all):
            passages = [
                (place, min(place + length, end))
                for start, end in text.sentences
                for place in range(start, end, length)
            ]
            if passages and not self.reads_all:  # the first sentences that fit; a longer first one is truncated
                passages = [(0, max(end for _, end in passages if end <= length))]
        else:
            passages = lead_sentences(text, length, options.sentences)
        sources = [
            Source({"tokens": np.array(text.tokens[start:end], object)}, end - start, (start, end))
            for start, end in passages
        ]
        return Reading(sources, item, text.shown)

    def in_graph(self, text: tf.Tensor) -> tuple[Tensors, Tensors]:
        """Read the first passage of each text."""
        tokens, starts, context = read_text_in_graph(text, self.tokenize)
        lengths = first_passage_lengths(starts, self.max_length)
        places = tf.ragged.range(tokens.row_lengths())
        is_read = places.flat_values < tf.gather(lengths, tokens.value_rowids())
        padded = pad(tf.ragged.boolean_mask(tokens, tokens.with_flat_values(is_read)))
        is_cut = (context["status"] == OK) & (lengths < tokens.row_lengths())
        return {"tokens": padded}, {**context, "status": tf.where(is_cut, CUT, context["status"])}

    def raw_inputs(self) -> dict[str, RawInput]:
        specs = {"text": tf.TensorSpec([None], tf.string)}
        return {DEFAULT_SIGNATURE: RawInput(self.in_graph, specs, {"text": [_EXAMPLE]}, {"text": self.note})}


@dataclass(frozen=True, eq=False)
class ReadText:
    """The tokens of a text, its sentences, the paragraph of each sentence, and the text for display.

    A text too short to summarize has no sentences.
    """

    tokens: list[bytes]
    sentences: list[Span]
    paragraphs: list[int]
    shown: TextShown


def read_text(item: Any, tokenize: Tokenize) -> ReadText:
    """Split a text into tokens and sentences."""
    if not isinstance(item, str | bytes):
        raise TypeError(f"A text must be a string or bytes. Received: {type(item).__name__}")
    raw = item.encode("utf-8", "surrogatepass") if isinstance(item, str) else item
    tokens, paragraph_of, starts, words, plain = (tensor.numpy() for tensor in _splitter(tokenize)(tf.constant([raw])))
    flat = tokens.tolist()
    sentences = sentence_spans(starts) if words >= MIN_WORDS else []
    paragraphs = paragraph_of[[start for start, _ in sentences]].tolist() if sentences else []
    shown = TextShown(plain.decode(), [plain_token(token) for token in flat])
    return ReadText(flat, sentences, paragraphs, shown)


@lru_cache(maxsize=8)
def _splitter(tokenize: Tokenize) -> Any:
    """Return a compiled function of one text: tokens, the paragraph of each, sentence starts, words, and plain text."""

    @tf.function(input_signature=[tf.TensorSpec([1], tf.string)], autograph=False)
    def split(texts: tf.Tensor) -> tuple[tf.Tensor, ...]:
        tokens = tokenize(split_paragraphs(texts).flat_values)
        words = tf.reduce_sum(count_words(tokens))
        starts = sentence_starts(tokens).flat_values
        return tokens.flat_values, tokens.value_rowids(), starts, words, normalize(texts)[0]

    return split


def read_text_in_graph(
    texts: tf.Tensor, tokenize: Tokenize, max_bytes: int = MAX_TEXT_BYTES
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, Tensors]:
    """Return the tokens of texts, the starts of their sentences, and the context of an exported model."""
    is_too_long = tf.strings.length(texts) > max_bytes
    texts = tf.where(is_too_long, "", texts)
    paragraphs = split_paragraphs(texts)
    tokens = tokenize(paragraphs.flat_values)
    starts = paragraphs.with_values(sentence_starts(tokens)).merge_dims(1, 2)
    tokens = paragraphs.with_values(tokens).merge_dims(1, 2)
    is_blank, is_short = tokens.row_lengths() == 0, count_words(tokens) < MIN_WORDS
    status = tf.where(is_blank, BLANK, tf.where(is_short, SHORT, OK))
    context = {"status": tf.where(is_too_long, TOO_LONG, status), "plain": normalize(texts)}
    return tokens, starts, context


def split_paragraphs(texts: tf.Tensor) -> tf.RaggedTensor:
    """Graph code: split texts `(batch,)` at blank lines. A sentence ends with its paragraph."""
    return tf.strings.split(tf.strings.regex_replace(texts, r"\n\s*\n", "\n\n"), "\n\n")


def sentence_spans(starts: Sequence[bool]) -> list[Span]:
    """Return the start and end of each sentence, given which tokens start one."""
    places = [*np.flatnonzero(starts).tolist(), len(starts)]
    return list(itertools.pairwise(places))


def lead_sentences(text: ReadText, max_length: int, count: int) -> list[Span]:
    """Choose up to `count` sentences that cover a text: the first of each of `count` parts of about equal size.

    The parts consist of whole paragraphs if there are enough of them. Sentences of few words are passed over. Longer
    sentences than `max_length` tokens are truncated.
    """
    long = [place for place, (start, end) in enumerate(text.sentences) if end - start > MIN_WORDS]
    _, leads = np.unique(np.array(text.paragraphs)[long], return_index=True)
    units = np.array(long)[leads] if len(leads) >= count else np.array(long, int)
    parts = np.array_split(units, min(count, len(units))) if len(units) else []
    chosen = [text.sentences[part[0]] for part in parts] or text.sentences[:1]
    return [(start, min(end, start + max_length)) for start, end in chosen]


def pad(tokens: tf.RaggedTensor) -> tf.Tensor:
    """Pad tokens with empty strings to `(batch, source)`, with at least one column."""
    padded = tokens.to_tensor("")
    return tf.pad(padded, [[0, 0], [0, tf.cast(tf.shape(padded)[1] == 0, tf.int32)]], constant_values="")


def plain_token(token: bytes) -> str:
    """Remove the joiner marks of a token."""
    return token.decode().replace(JOINER, "")
