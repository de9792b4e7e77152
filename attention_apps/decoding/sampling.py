"""Sampling, and the loop that it shares with greedy search: one token at a time for each row."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import keras
from keras import ops, tree

from attention_apps.checks import require
from attention_apps.decoding.options import (
    DecodingOptions,
    DecodingResult,
    best_candidates,
    coverage_scores,
    forced_at,
    forced_tokens,
    make_result,
    penalize_length,
    score_next_tokens,
    values_of,
)
from attention_apps.decoding.scorers import (
    ScoredStep,
    Scorer,
    State,
    Step,
    Tensor,
    as_tensors,
    join_scorers,
    keep_shape,
    repeat_state,
)

# Chooses tokens `(rows,)` from the scores of all tokens `(rows, vocabulary)` and the position.
Choose: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# Keeps a draw below the last cumulative probability in spite of rounding.
_LARGEST_DRAW = 1.0 - 1e-6
_CHUNK = 64


def sample(
    step: Step,
    state: State,
    options: DecodingOptions,
    num_samples: int = 1,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | keras.random.SeedGenerator | None = None,
    scorers: Sequence[Scorer] = (),
    prefix: Tensor | None = None,
) -> DecodingResult:
    """Draw `num_samples` independent sequences for each item.

    Tokens are drawn from the distribution that beam search ranks them by, with temperature, repetition penalty,
    scorers and bans. `beam_size` and `num_best` are ignored.

    Args:
        step: as in `beam_search`.
        state: as in `beam_search`.
        options: see `DecodingOptions`.
        num_samples: number of sequences per item. Replaces `num_best` in the shapes of the result.
        top_k: draw from the k most likely tokens only.
        top_p: draw from the smallest set of most likely tokens that has this probability, after `top_k`. Without
            `top_k` it sorts the vocabulary at each step, which is slow.
        seed: an integer gives the same samples at each call, a `keras.random.SeedGenerator` new ones.
        scorers: see `Scorer`.
        prefix: forced first tokens of each item, `(batch, length)`, padded with 0.

    Reference:
        Fan et al. 2018, section 5.4 (top-k); Holtzman et al. 2020, section 3.1 (top-p).
    """
    require(num_samples >= 1, "num_samples", "at least 1", num_samples)
    require(top_k is None or top_k >= 1, "top_k", "at least 1 or None", top_k)
    require(top_p is None or 0 < top_p <= 1, "top_p", "above 0 and at most 1, or None", top_p)
    state, batch = as_tensors(state)
    forced = forced_tokens(prefix, batch, options)
    scored_step, state = join_scorers(step, state, scorers)
    draws = keras.random.uniform((options.max_length, batch * num_samples), 0.0, _LARGEST_DRAW, "float32", seed)
    choose = _choose_at_random(draws, top_k, top_p)
    return write_sequences(scored_step, state, batch, forced, options, choose, num_samples)


class Rows(NamedTuple):
    """The sequences so far: tokens `(rows, max_length)`, the rest `(rows,)`. Sequences that have ended never change."""

    tokens: Tensor
    last: Tensor
    totals: Tensor
    log_probs: Tensor
    coverage: Tensor
    lengths: Tensor
    finished: Tensor

    def is_open(self) -> Tensor:
        """True where a sequence is extended: it has not ended, and there was a token to write."""
        return ops.logical_and(ops.logical_not(self.finished), self.totals > -math.inf)


def write_sequences(
    step: ScoredStep,
    state: State,
    batch: int | Tensor,
    forced: Tensor | None,
    options: DecodingOptions,
    choose: Choose,
    copies: int = 1,
    normalized: bool = False,
) -> DecodingResult:
    """Write `copies` sequences for each item. `step` and `state` come from `join_scorers`."""
    state = repeat_state(as_tensors(state)[0], copies)
    forced = forced if forced is None or copies == 1 else ops.repeat(forced, copies, axis=0)

    def body(position: Tensor, rows: Rows, entries: list[Tensor]) -> tuple[Tensor, Rows, list[Tensor]]:
        (logits, scorers), new_state = step(rows.last, tree.pack_sequence_as(state, entries))
        rows = _write(rows, logits, scorers, new_state["model"], forced, position, options, choose, normalized)
        return position + 1, rows, [keep_shape(new, old) for new, old in zip(tree.flatten(new_state), entries)]

    number = batch * copies
    zeros, lengths = ops.zeros((number,), "float32"), ops.zeros((number,), "int32")
    tokens = ops.zeros((number, options.max_length), "int32")
    last = ops.full((number,), options.start_token, "int32")
    rows = Rows(tokens, last, zeros, zeros, zeros, lengths, ops.zeros((number,), "bool"))
    start = (ops.convert_to_tensor(0, "int32"), rows, tree.flatten(state))
    _, rows, _ = ops.while_loop(
        lambda position, rows, _: ops.logical_and(position < options.max_length, ops.any(rows.is_open())), body, start
    )
    scores = penalize_length(rows.totals, ops.maximum(rows.lengths, 1), options) + rows.coverage
    parts = (rows.tokens, scores, rows.log_probs, rows.lengths, rows.finished)
    return make_result(*(ops.reshape(part, (-1, copies, *part.shape[1:])) for part in parts))


def _write(
    rows: Rows,
    logits: Tensor,
    scorers: Tensor | None,
    state: State,
    forced: Tensor | None,
    position: Tensor,
    options: DecodingOptions,
    choose: Choose,
    normalized: bool,
) -> Rows:
    """Write one more token into every open row."""
    next_tokens = score_next_tokens(logits, scorers, rows.tokens, position, options, normalized)
    index = ops.arange(ops.shape(rows.tokens)[0])
    token = choose(next_tokens.allowed, position)
    scores = values_of(next_tokens.allowed, index, token)
    if forced is not None:
        wanted = forced_at(forced, position)
        token = ops.where(wanted > 0, wanted, token)
        scores = ops.where(wanted > 0, values_of(next_tokens.scores, index, token), scores)
    normalizer = next_tokens.normalizer[:, 0]
    is_open, coverage = rows.is_open(), coverage_scores(state, options)
    is_here = ops.logical_and(ops.expand_dims(is_open, 1), ops.arange(options.max_length) == position)
    log_probs = values_of(next_tokens.logits, index, token) - normalizer
    return Rows(
        tokens=ops.where(is_here, ops.expand_dims(token, 1), rows.tokens),
        last=ops.where(is_open, token, rows.last),
        totals=ops.where(is_open, rows.totals + scores - normalizer, rows.totals),
        log_probs=ops.where(is_open, rows.log_probs + log_probs, rows.log_probs),
        coverage=rows.coverage if coverage is None else ops.where(is_open, coverage, rows.coverage),
        lengths=ops.where(is_open, position + 1, rows.lengths),
        finished=ops.logical_or(rows.finished, ops.logical_and(is_open, token == options.end_token)),
    )


def _choose_at_random(draws: Tensor, top_k: int | None, top_p: float | None) -> Choose:
    """Choose tokens by uniform random numbers, `(max_length, rows)`, one per position and row."""

    def choose(scores: Tensor, position: Tensor) -> Tensor:
        draw = ops.take(draws, position, axis=0)  # (R,)
        if top_k is None and top_p is None:
            return _invert_in_chunks(ops.softmax(scores, axis=-1), draw)
        if top_k is None:
            scores, tokens = ops.top_k(scores, ops.shape(scores)[-1])
        else:
            scores, _, tokens = best_candidates(scores, ops.zeros((ops.shape(scores)[0], 1)), top_k)
        weights = ops.exp(scores - scores[:, :1])
        if top_p is not None:
            up_to = ops.cumsum(weights, axis=-1)
            weights = ops.where(up_to - weights < top_p * up_to[:, -1:], weights, 0.0)
        return values_of(tokens, ops.arange(ops.shape(tokens)[0]), _invert(weights, draw))

    return choose


def _invert_in_chunks(probabilities: Tensor, draws: Tensor) -> Tensor:
    """Like `_invert`, but faster for a whole vocabulary: draws a chunk first, then a token in it."""
    size = ops.shape(probabilities)[-1]
    missing = -size % _CHUNK
    padded = ops.pad(probabilities, ((0, 0), (0, missing)))
    chunks = ops.reshape(padded, (-1, (size + missing) // _CHUNK, _CHUNK))
    sums = ops.sum(chunks, axis=-1)  # (R, chunks)
    chunk, rows = _invert(sums, draws), ops.arange(ops.shape(sums)[0])
    up_to, own = values_of(ops.cumsum(sums, axis=-1), rows, chunk), values_of(sums, rows, chunk)
    rest = draws * ops.sum(sums, axis=-1) - (up_to - own)
    inside = ops.take(ops.reshape(chunks, (-1, _CHUNK)), rows * ops.shape(sums)[1] + chunk, axis=0)
    token = chunk * _CHUNK + _invert(inside, ops.clip(rest / own, 0.0, _LARGEST_DRAW))
    return ops.minimum(token, size - 1)


def _invert(weights: Tensor, draws: Tensor) -> Tensor:
    """Return the first index whose cumulative share exceeds the draw. Never an index of weight 0."""
    cumulative = ops.cumsum(weights, axis=-1)
    reached = cumulative > ops.expand_dims(draws, 1) * cumulative[:, -1:]
    reached = ops.logical_and(reached, weights > 0)
    size = ops.shape(weights)[-1]
    return ops.min(ops.where(reached, ops.arange(size), size - 1), axis=-1)
