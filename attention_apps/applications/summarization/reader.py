"""Read texts as passages of tokens."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from attention_apps.applications.parts import RawInput, Reading, Source, Tensors
from attention_apps.applications.summarization.config import SummarizerConfig, SummaryOptions
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
_NOTE = f"texts of at most {MAX_TEXT_BYTES:,} bytes of UTF-8; invalid bytes are read as U+FFFD"
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
    """Reads strings or UTF-8 bytes. A text that is too long for the model is cut at sentence boundaries.

    Without `sentences`, only the first passage is read. With it, all passages are read and the codec chooses among
    them.

    Args:
        tokenize: graph code that converts strings to tokens.
    """

    max_batch_length = float("inf")
    signature: ClassVar[Mapping[str, tf.TensorSpec]] = {"tokens": tf.TensorSpec((None, None), tf.string)}

    def __init__(self, config: SummarizerConfig, tokenize: Tokenize = text.tokenize):
        self.max_length = config.max_source_length
        self.tokenize = tokenize

    def read(self, item: Any, options: SummaryOptions) -> Reading:
        tokens, sentences, shown = read_text(item, self.tokenize)
        count = options.sentences or 1
        passages = cut_into_passages(sentences, self.max_length, count)
        return Reading(make_sources(tokens, passages[:1] if count == 1 else passages), item, shown)

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
        return text_input(self.in_graph)


def read_text(item: Any, tokenize: Tokenize) -> tuple[list[bytes], list[Span], TextShown]:
    """Return the tokens of a text, its sentences, and the text for display.

    A text too short to summarize has no sentences.
    """
    if not isinstance(item, str | bytes):
        raise TypeError(f"A text must be a string or bytes. Received: {type(item).__name__}")
    tokens = tokenize([item])
    flat = tokens.flat_values.numpy().tolist()
    is_long = int(count_words(tokens)[0]) >= MIN_WORDS
    sentences = sentence_spans(sentence_starts(tokens).flat_values.numpy()) if is_long else []
    shown = TextShown(normalize([item])[0].numpy().decode(), [plain_token(token) for token in flat])
    return flat, sentences, shown


def read_text_in_graph(texts: tf.Tensor, tokenize: Tokenize) -> tuple[tf.RaggedTensor, tf.RaggedTensor, Tensors]:
    """Return the tokens of texts, the starts of their sentences, and the context of an exported model."""
    is_too_long = tf.strings.length(texts) > MAX_TEXT_BYTES
    texts = tf.where(is_too_long, "", texts)
    tokens = tokenize(texts)
    is_blank, is_short = tokens.row_lengths() == 0, count_words(tokens) < MIN_WORDS
    status = tf.where(is_blank, BLANK, tf.where(is_short, SHORT, OK))
    context = {"status": tf.where(is_too_long, TOO_LONG, status), "plain": normalize(texts)}
    return tokens, sentence_starts(tokens), context


def sentence_spans(starts: Sequence[bool]) -> list[Span]:
    """Return the start and end of each sentence, given which tokens start one."""
    places = [*np.flatnonzero(starts).tolist(), len(starts)]
    return list(itertools.pairwise(places))


def cut_into_passages(sentences: Sequence[Span], max_length: int, count: int = 1) -> list[Span]:
    """Cut a text into passages of whole sentences of at most `max_length` tokens, `count` of them if possible.

    A sentence longer than `max_length` is split.
    """
    total = sentences[-1][1] if sentences else 0
    limit = min(max_length, -(-total // max(count, 1)))
    passages: list[Span] = []
    pieces = (
        (place, min(place + max_length, end)) for start, end in sentences for place in range(start, end, max_length)
    )
    for start, end in pieces:
        if passages and end - passages[-1][0] <= limit:
            passages[-1] = (passages[-1][0], end)
        else:
            passages.append((start, end))
    return passages


def choose_passages(features: np.ndarray, count: int) -> list[int]:
    """Choose the first passage, which matters most in news, and those most similar to the whole text, in their order.

    Args:
        features: `(passages, dim)`, a vector per passage.
    """
    whole = features.mean(axis=0)
    norms = np.linalg.norm(features, axis=1) * np.linalg.norm(whole)
    likeness = features @ whole / np.maximum(norms, 1e-9)
    likeness[0] = np.inf
    return sorted(np.argsort(-likeness, kind="stable")[:count].tolist())


def make_sources(tokens: Sequence[bytes], passages: Sequence[Span]) -> list[Source]:
    """Return a source for each passage of a text."""
    return [
        Source({"tokens": np.array(tokens[start:end], object)}, end - start, (start, end)) for start, end in passages
    ]


def text_input(in_graph: Callable[..., tuple[Tensors, Tensors]]) -> dict[str, RawInput]:
    """Return the raw input of an exported model that reads texts."""
    specs = {"text": tf.TensorSpec([None], tf.string)}
    return {DEFAULT_SIGNATURE: RawInput(in_graph, specs, {"text": [_EXAMPLE]}, {"text": _NOTE})}


def pad(tokens: tf.RaggedTensor) -> tf.Tensor:
    """Pad tokens with empty strings to `(batch, source)`, with at least one column."""
    padded = tokens.to_tensor("")
    return tf.pad(padded, [[0, 0], [0, tf.cast(tf.shape(padded)[1] == 0, tf.int32)]], constant_values="")


def plain_token(token: bytes) -> str:
    """Remove the joiner marks of a token."""
    return token.decode().replace(JOINER, "")
