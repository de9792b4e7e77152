"""The scores of all next tokens: temperature, repetition penalty, scorers and bans."""

import math
from typing import NamedTuple

from keras import ops

from attention_apps.decoding.options import DecodingOptions
from attention_apps.decoding.state import Tensor


class NextTokens(NamedTuple):
    """Scores of every next token of every hypothesis, all `(rows, vocabulary)` and short of the same constant.

    Attributes:
        logits: the model's, after temperature.
        scores: `logits` with the repetition penalty and the scorers.
        allowed: `scores`, with -inf for what may not be written.
        normalizer: `(rows, 1)`, what to subtract from any of them to have log-probabilities.
    """

    logits: Tensor
    scores: Tensor
    allowed: Tensor
    normalizer: Tensor


def score_next_tokens(
    logits: Tensor, scorers: Tensor | None, history: Tensor, written: Tensor, options: DecodingOptions
) -> NextTokens:
    """Applies every option that looks at the vocabulary.

    The normaliser is subtracted only later, from the few tokens that are chosen: a pass less over the vocabulary.

    Args:
        logits: `(rows, vocabulary)`, or log-probabilities.
        scorers: `(rows, vocabulary)`, their weighted sum, or `None`.
        history: int32 `(rows, max_length)`, the tokens so far.
        written: how many those are, a scalar.
    """
    logits = ops.cast(logits, "float32")
    _check_vocabulary(logits.shape[-1], options)
    logits = logits if options.temperature == 1 else logits / options.temperature
    normalizer = ops.logsumexp(logits, axis=-1, keepdims=True)
    scores = logits
    if options.repetition_penalty != 1:
        scores = _penalize_repetition(scores, normalizer, history, written, options.repetition_penalty)
    scores = scores if scorers is None else scores + scorers
    allowed = scores
    if options.no_repeat_ngram_size:
        allowed = _block_ngrams(allowed, history, written, options.no_repeat_ngram_size)
    if options.banned_tokens or options.min_length > 1:
        allowed = allowed + _bans(ops.shape(logits)[-1], written, options)
    return NextTokens(logits, scores, allowed, normalizer)


def values_of(table: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
    """`table[rows, tokens]`, for a table of `(rows, vocabulary)`."""
    return ops.take(ops.reshape(table, (-1,)), rows * ops.shape(table)[-1] + tokens)


def _check_vocabulary(size: int | None, options: DecodingOptions) -> None:
    for name in ("end_token", "banned_tokens", "forced_prefix"):
        value = getattr(options, name)
        if size is not None and max((value,) if isinstance(value, int) else value, default=0) >= size:
            raise ValueError(f"`{name}` must be below {size}, the size of the vocabulary. Received: {name}={value!r}")


def _penalize_repetition(
    scores: Tensor, normalizer: Tensor, history: Tensor, written: Tensor, penalty: float
) -> Tensor:
    rows = ops.expand_dims(ops.arange(ops.shape(history)[0]), 1)
    log_probs = values_of(scores, rows, history) - normalizer  # (R, T)
    reduction, neutral = ("min", math.inf) if penalty > 1 else ("max", -math.inf)
    is_written = ops.arange(history.shape[1]) < written
    return _scatter(scores, history, ops.where(is_written, penalty * log_probs + normalizer, neutral), reduction)


def _block_ngrams(scores: Tensor, history: Tensor, written: Tensor, size: int) -> Tensor:
    """Bans each token that followed an earlier occurrence of the last `size - 1` tokens."""
    positions = ops.arange(history.shape[1])
    repeats = ops.logical_and(positions >= size - 1, positions < written)  # (T,)
    for offset in range(1, size):
        last = ops.take(history, ops.maximum(written - offset, 0), axis=1)
        repeats = ops.logical_and(repeats, ops.roll(history, offset, axis=1) == ops.expand_dims(last, 1))  # (R, T)
    repeats = ops.broadcast_to(repeats, ops.shape(history))
    return _scatter(scores, history, ops.where(repeats, -math.inf, math.inf), "min")


def _bans(vocabulary: int | Tensor, written: Tensor, options: DecodingOptions) -> Tensor:
    """0 or -inf for each token, `(vocabulary,)`."""
    ids = ops.arange(vocabulary)
    banned = ops.logical_and(ids == options.end_token, written + 1 < options.min_length)
    if options.banned_tokens:
        tokens = ops.convert_to_tensor(options.banned_tokens, "int32")
        banned = ops.logical_or(banned, ops.any(ops.expand_dims(ids, 1) == tokens, axis=1))
    return ops.where(banned, -math.inf, 0.0)


def _scatter(table: Tensor, tokens: Tensor, updates: Tensor, reduction: str) -> Tensor:
    """Merges `updates[row, i]` into `table[row, tokens[row, i]]`; a reduction makes the order irrelevant."""
    rows = ops.broadcast_to(ops.expand_dims(ops.arange(ops.shape(tokens)[0]), 1), ops.shape(tokens))
    indices = ops.reshape(ops.stack([rows, tokens], axis=-1), (-1, 2))
    return ops.scatter_update(table, indices, ops.reshape(updates, (-1,)), reduction=reduction)
