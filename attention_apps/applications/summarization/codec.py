"""Convert summaries to tokens, and model outputs to a `Summary`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from attention_apps.applications.outputs import (
    calibrated,
    clear_rows,
    token_probabilities,
)
from attention_apps.applications.parts import AnsweredParts, Codec, Reading, Tensors
from attention_apps.applications.summarization.config import SummaryOptions
from attention_apps.applications.summarization.reader import BLANK, CUT, OK, SHORT, TOO_LONG
from attention_apps.applications.summarization.summary import Summary, SummaryLine
from attention_apps.constants import END, SPECIAL_TOKENS, UNKNOWN, VERY_NEGATIVE
from attention_apps.decoding import DecodingResult
from attention_apps.decoding.scorers import Scorer
from attention_apps.preprocessing.text import JOINER, detokenize
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.preprocessing.word_forms import (
    UNKNOWN_CLASS_IDS,
    lowercase,
    restore_case,
    source_ids,
    to_model_forms,
    unknown_class_ids,
)

# How many words after a word of the source do not count as a jump.
_JUMP_REACH = 2
STATUS_NOTE = ", ".join(f"`{status}`" for status in (OK, CUT, SHORT, BLANK, TOO_LONG))


class SummaryCodec(Codec):
    """Writes words of the vocabulary, and copies out-of-vocabulary words from the source.

    Args:
        vocabulary: words in their usual spelling. The model sees them in lowercase.
    """

    output_notes: Mapping[str, str] = {
        "text": "summaries, best first",
        "score": "the ranking score of each; higher is better",
        "confidence": "the confidence of the best summary, from 0 to 1",
        "unsure": "whether the confidence is below the threshold of the preset",
        "token_ids": "token ids of the best summary, then the end token 2, then 0",
        "tokens": "tokens of the best summary, then empty strings",
        "copied": "whether each of these was copied because it is out of vocabulary",
        "attention": "for each of these tokens, how much each token of the source was read",
        "source_tokens": "the tokens that were read, then empty strings",
        "status": STATUS_NOTE,
    }
    result: type[Summary] = Summary
    # The form in which the model sees a word.
    model_form: Callable[[tf.Tensor], tf.Tensor] = staticmethod(lowercase)
    # Whether all tokens are copied. By default, the outputs say it for each token.
    is_copied: bool | None = None
    # What is between the lines of a text that is not shortened to some of its sentences.
    separator = "\n"
    # The position of the text in the encoder's input.
    first_position = 0

    def __init__(self, config: Any, vocabulary: Vocabulary):
        super().__init__(config, vocabulary)
        self.model_vocabulary = to_model_forms(vocabulary, self.model_form)
        self.resources = (self.model_vocabulary.table,)

    def prepare(self, source: Tensors) -> Tensors:
        tokens = source["tokens"]
        token_ids, copied_ids = source_ids(lowercase(tokens), self.model_vocabulary)
        token_ids = tf.where(token_ids == UNKNOWN, unknown_class_ids(tokens), token_ids)
        return {"token_ids": token_ids, "source_ids": copied_ids}

    def search_options(self, options: Any) -> Any:
        """Ban the tokens that stand for out-of-vocabulary words."""
        banned = sorted({*options.banned_tokens, UNKNOWN, *UNKNOWN_CLASS_IDS})
        return replace(options, banned_tokens=tuple(banned))

    def scorers(self, memory: Tensors, options: Any) -> Sequence[Any]:
        """Return the limit of words and the penalty of jumps. Where nothing can be copied, there are no jumps."""
        has_copies, scorers = "source_ids" in memory, []
        source_ids = memory["source_ids"] if has_copies else tf.zeros([tf.shape(memory["mask"])[0], 0], tf.int32)
        if options.min_words or options.max_words is not None:
            scorers.append(word_limit(self.vocabulary, source_ids, options.min_words, options.max_words))
        if options.jump_penalty and has_copies:
            scorers.append(jump_scorer(len(self.vocabulary), source_ids, options.jump_penalty))
        return scorers

    def words(self, token_ids: tf.Tensor, source: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
        """Graph code: return the tokens of hypotheses `(batch, num_best, target)`, and which of them are copied."""
        return restore_case(token_ids, source["source_ids"], source["tokens"], self.vocabulary)

    def texts(self, token_ids: tf.Tensor, source: Tensors) -> tf.Tensor:
        words, _ = self.words(token_ids, source)
        shape = tf.shape(words)
        return tf.reshape(detokenize(tf.reshape(words, [-1, shape[-1]])), shape[:2])

    def outputs(self, source: Tensors, memory: Tensors, result: DecodingResult, forced: Tensors) -> Tensors:
        token_ids, first = forced["token_ids"], self.first_position
        words, copied = (part[:, 0] for part in self.words(token_ids[:, tf.newaxis], source))
        attention = forced["attention"][..., first : first + tf.shape(source["tokens"])[1]]
        return {
            "text": self.texts(result.token_ids, source),
            "score": result.scores,
            **calibrated(token_probabilities(forced), token_ids > 0, self.config.confidence),
            "token_ids": token_ids,
            "tokens": tf.strings.regex_replace(words, JOINER, ""),
            "copied": copied,
            "attention": tf.where((words != "")[..., tf.newaxis], attention, 0.0),
            "source_tokens": tf.strings.regex_replace(source["tokens"], JOINER, ""),
        }

    def join(self, reading: Reading, parts: AnsweredParts, options: SummaryOptions) -> Summary:
        shown, threshold = reading.shown, self.config.confidence.threshold
        if not parts:
            return self.result.verbatim(shown.plain, shown.tokens, reading.item)
        lines = [
            SummaryLine.from_outputs(outputs, source.place, self.is_copied)
            for source, outputs in parts
            if outputs is not None
        ]
        separator = self.separator if options.sentences is None else "\n"
        return self.result(lines, shown.tokens, separator, threshold, source=reading.item)

    def serve(self, outputs: Tensors, context: Tensors, options: SummaryOptions) -> Tensors:
        """Return the outputs of an exported model. A short text is its own summary, a blank one has none."""
        if options.sentences is not None:
            raise ValueError(f"`sentences` must be None in an export. Received: sentences={options.sentences}")
        status, source_tokens = context["status"], outputs["source_tokens"]
        is_answered = (status == OK) | (status == CUT)
        is_short = status == SHORT
        is_verbatim = is_short[:, tf.newaxis] & (tf.range(tf.shape(outputs["score"])[1]) == 0)
        outputs = clear_rows(outputs, ~is_answered)
        return {
            **outputs,
            "text": tf.where(is_verbatim, context["plain"][:, tf.newaxis], outputs["text"]),
            "score": tf.where(is_verbatim, 0.0, outputs["score"]),
            "confidence": tf.where(is_short, 1.0, outputs["confidence"]),
            "source_tokens": source_tokens,
            "status": status,
        }


def word_limit(
    vocabulary: Vocabulary, source_ids: tf.Tensor, min_words: int = 0, max_words: int | None = None
) -> Scorer:
    """Return a scorer that limits the number of words, counted between spaces.

    Args:
        source_ids: `(batch, source)`, ids of the extended vocabulary. It has one additional id per position, all words.
    """
    batch, source = tf.unstack(tf.shape(source_ids))
    further = tf.zeros([source], tf.bool)
    joins_before = tf.concat([[word.startswith(JOINER) for word in vocabulary.tokens], further], axis=0)
    joins_after = tf.concat([[word.endswith(JOINER) for word in vocabulary.tokens], further], axis=0)
    is_end = tf.range(tf.size(joins_before)) == END

    def call(token: tf.Tensor, state: Mapping[str, Any]) -> tuple[tf.Tensor, dict[str, Any]]:
        is_real = token >= len(SPECIAL_TOKENS)  # the start token is not a word
        begins = is_real & ~tf.gather(joins_before, token) & ~state["joined"]
        words = state["words"] + tf.cast(begins | (is_real & (state["words"] == 0)), tf.int32)
        joined = is_real & tf.gather(joins_after, token)
        forbidden = is_end & (words < min_words)[:, tf.newaxis]
        if max_words is not None:
            full = (words >= max_words) & ~joined
            forbidden |= full[:, tf.newaxis] & ~joins_before & ~is_end
        return tf.where(forbidden, VERY_NEGATIVE, 0.0), {"words": words, "joined": joined}

    state = {"words": tf.zeros([batch], tf.int32), "joined": tf.zeros([batch], tf.bool)}
    return Scorer(call, state, upper_bound=0.0)


def jump_scorer(vocabulary_size: int, source_ids: tf.Tensor, penalty: float) -> Scorer:
    """Return a scorer that penalizes jumps: see `SummaryDecodingOptions`.

    Args:
        source_ids: `(batch, source)`, ids of the extended vocabulary.
    """

    def call(token: tf.Tensor, state: Mapping[str, Any]) -> tuple[tf.Tensor, Mapping[str, Any]]:
        ids = state["source_ids"]
        rows, length = tf.unstack(tf.shape(ids))
        is_last = ids == token[:, tf.newaxis]
        padded = tf.pad(is_last, [[0, 0], [_JUMP_REACH, 0]])
        is_near = tf.reduce_any([padded[:, place : place + length] for place in range(_JUMP_REACH)], axis=0)
        places = tf.stack([tf.broadcast_to(tf.range(rows)[:, tf.newaxis], tf.shape(ids)), ids], axis=-1)
        # A word that is both near and far in the source is near.
        nothing = tf.zeros([rows, vocabulary_size + length])
        occurs = tf.tensor_scatter_nd_max(nothing, places, tf.ones(tf.shape(ids)))
        near = tf.tensor_scatter_nd_max(nothing, places, tf.cast(is_near, tf.float32))
        was_read = tf.reduce_any(is_last, axis=1, keepdims=True)
        return tf.where(was_read, near - occurs, 0.0), state

    return Scorer(call, {"source_ids": source_ids}, penalty, upper_bound=0.0)
