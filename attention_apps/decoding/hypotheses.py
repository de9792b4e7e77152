"""The live hypotheses of a beam search, the finished ones, and how one becomes the other."""

import math
from typing import NamedTuple

from keras import ops

from attention_apps.decoding.candidates import Candidates
from attention_apps.decoding.options import DecodingOptions
from attention_apps.decoding.penalties import penalize_length
from attention_apps.decoding.result import DecodingResult
from attention_apps.decoding.state import Tensor


class Live(NamedTuple):
    """Hypotheses that go on: tokens `(batch, beams, max_length)`, the rest `(batch, beams)`."""

    tokens: Tensor
    totals: Tensor
    log_probs: Tensor


class Finished(NamedTuple):
    """The best that have ended, frozen: tokens `(batch, num_best, max_length)`, the rest `(batch, num_best)`."""

    tokens: Tensor
    scores: Tensor
    log_probs: Tensor


def start_live(batch: int | Tensor, options: DecodingOptions) -> Live:
    """One empty hypothesis for each item."""
    zeros = ops.zeros((batch, 1), "float32")
    return Live(ops.zeros((batch, 1, options.max_length), "int32"), zeros, zeros)


def start_finished(batch: int | Tensor, options: DecodingOptions) -> Finished:
    """Nothing has ended yet: every score is -inf."""
    shape = (batch, options.num_best)
    nothing = ops.full(shape, -math.inf, "float32")
    tokens = ops.zeros((*shape, options.max_length), "int32")
    return Finished(tokens, nothing, nothing)


def pick(values: Tensor, index: Tensor) -> Tensor:
    """`values[item, index[item, i]]`: `(batch, n, ...)` and `(batch, count)` to `(batch, count, ...)`."""
    items = ops.expand_dims(ops.arange(ops.shape(index)[0]), 1)
    flat = ops.reshape(values, (-1, *values.shape[2:]))
    return ops.take(flat, index + items * values.shape[1], axis=0)


def extend(
    live: Live, candidates: Candidates, log_probs: Tensor, position: Tensor, options: DecodingOptions
) -> tuple[Live, Tensor, Tensor]:
    """The best candidates that do not end, with their `(batch, beams)` parents and last tokens."""
    going_on = ops.where(candidates.tokens == options.end_token, -math.inf, candidates.totals)
    totals, index = ops.top_k(going_on, options.beam_size)
    parents, last = pick(candidates.beams, index), pick(candidates.tokens, index)
    is_here = ops.arange(options.max_length) == position
    tokens = ops.where(is_here, ops.expand_dims(last, -1), pick(live.tokens, parents))
    log_probs = totals if log_probs is candidates.totals else pick(log_probs, index)
    return Live(tokens, totals, log_probs), parents, last


def finish(
    finished: Finished,
    live: Live,
    candidates: Candidates,
    log_probs: Tensor,
    coverage: Tensor | None,
    position: Tensor,
    options: DecodingOptions,
) -> Finished:
    """Adds the candidates that end and are among the best `beam_size`, and keeps the best `num_best`.

    Args:
        log_probs: of the candidates, `(batch, count)`.
        coverage: the coverage penalty of each live hypothesis, `(batch, beams)`, or `None`.
        position: where this step writes, a scalar.
    """
    count, kept = options.beam_size, options.num_best
    totals, beams, tokens = (part[:, :count] for part in candidates)
    scores = penalize_length(totals, position + 1, options)
    scores = scores if coverage is None else scores + pick(coverage, beams)
    scores = ops.where(tokens == options.end_token, scores, -math.inf)
    scores, index = ops.top_k(ops.concatenate([finished.scores, scores], axis=1), kept)
    is_new = index >= kept
    source = ops.where(is_new, pick(beams, ops.maximum(index - kept, 0)) + kept, index)
    tokens = pick(ops.concatenate([finished.tokens, live.tokens], axis=1), source)
    ends_here = ops.logical_and(ops.expand_dims(is_new, -1), ops.arange(options.max_length) == position)
    log_probs = pick(ops.concatenate([finished.log_probs, log_probs[:, :count]], axis=1), index)
    return Finished(ops.where(ends_here, options.end_token, tokens), scores, log_probs)


def to_result(
    finished: Finished, live: Live, coverage: Tensor | None, written: Tensor, options: DecodingOptions
) -> DecodingResult:
    """The finished hypotheses, and where there are too few of them, the best unfinished ones."""
    scores = penalize_length(live.totals, written, options)
    scores = scores if coverage is None else scores + coverage
    scores, index = ops.top_k(scores, options.num_best)
    unfinished = Finished(pick(live.tokens, index), scores, pick(live.log_probs, index))
    number = ops.sum(ops.cast(finished.scores > -math.inf, "int32"), axis=1, keepdims=True)
    ranks = ops.expand_dims(ops.arange(options.num_best), 0)
    source = ops.where(ranks < number, ranks, options.num_best + ranks - number)
    tokens, scores, log_probs = (pick(ops.concatenate(parts, axis=1), source) for parts in zip(finished, unfinished))
    ends = ops.cast(ops.argmax(ops.cast(tokens == options.end_token, "int32"), axis=-1), "int32") + 1
    return as_result(tokens, scores, log_probs, ops.where(ranks < number, ends, written), ranks < number)


def as_result(tokens: Tensor, scores: Tensor, log_probs: Tensor, lengths: Tensor, finished: Tensor) -> DecodingResult:
    """A result in which hypotheses of score -inf, which do not exist, are empty."""
    exists = scores > -math.inf
    return DecodingResult(
        token_ids=ops.where(ops.expand_dims(exists, -1), tokens, 0),
        scores=scores,
        log_probs=ops.where(exists, log_probs, -math.inf),
        lengths=ops.where(exists, lengths, 0),
        finished=ops.logical_and(finished, exists),
    )
