"""Beam search, batched and in one graph.

Each step scores the next tokens of all live hypotheses of an item and takes the best `2 · beam_size` candidates. The
ones that end become finished hypotheses; the best of the others become the live hypotheses of the next step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from keras import ops

from attention_apps.decoding.options import (
    Candidates,
    DecodingOptions,
    DecodingResult,
    NextTokens,
    best_candidates,
    best_future_scores,
    coverage_scores,
    forced_at,
    forced_tokens,
    make_result,
    penalize_length,
    score_next_tokens,
    values_of,
)
from attention_apps.decoding.sampling import write_sequences
from attention_apps.decoding.scorers import (
    ScoredStep,
    Scorer,
    SplitState,
    State,
    Step,
    Tensor,
    as_tensors,
    join_scorers,
    keep_shape,
    largest_gain,
)


class Live(NamedTuple):
    """Hypotheses that are still extended: tokens `(batch, beams, max_length)`, the rest `(batch, beams)`."""

    tokens: Tensor
    totals: Tensor
    log_probs: Tensor


class Finished(NamedTuple):
    """The best hypotheses that have ended: tokens `(batch, num_best, max_length)`, the rest `(batch, num_best)`."""

    tokens: Tensor
    scores: Tensor
    log_probs: Tensor


# The loop variables: number of tokens written, last tokens, hypotheses, changing entries of the state.
_Variables: TypeAlias = tuple[Tensor, Tensor, Live, Finished, list[Tensor]]


def beam_search(
    step: Step,
    state: State,
    options: DecodingOptions,
    scorers: Sequence[Scorer] = (),
    prefix: Tensor | None = None,
    normalized: bool = False,
) -> DecodingResult:
    """Find the sequences with the best scores, with `beam_size` live hypotheses per item.

    A continuation with the end token finishes if it is among the best `beam_size` continuations of its item. Finished
    hypotheses never change. The best `beam_size` continuations without the end token stay live. The search stops when
    no live hypothesis of any item can still get into its `num_best`, or at `max_length`. With `beam_size=1` it is
    greedy: it writes the most likely token until that is the end token.

    Args:
        step: `step(token, state) -> (logits, state)`, `(rows,)` to `(rows, vocabulary)`. It may return logits or
            log-probabilities. Entries of the state that depend on the source only should be returned as the same
            tensor objects. The search then leaves them alone, while it reorders other entries with the hypotheses.
        state: nested dicts of tensors with the batch axis first, one row per item. The step gets them with one row
            per hypothesis, the hypotheses of an item next to each other. Entries below a key `"per_item"` keep one
            row per item.
        options: see `DecodingOptions`.
        scorers: see `Scorer`.
        prefix: forced first tokens of each item, `(batch, length)`, padded with 0.
        normalized: whether `step` always returns log-probabilities. Saves a pass over the vocabulary.
    """
    state, batch = as_tensors(state)
    forced = forced_tokens(prefix, batch, options)
    scored_step, state = join_scorers(step, state, scorers)
    if options.beam_size == 1:
        return write_sequences(
            scored_step,
            state,
            batch,
            forced,
            options,
            choose=lambda scores, position: ops.cast(ops.argmax(scores, axis=-1), "int32"),
            normalized=normalized,
        )
    state, _ = as_tensors(state)
    return _BeamSearch(scored_step, forced, largest_gain(scorers), options, normalized).run(state, batch)


@dataclass(frozen=True)
class _BeamSearch:
    """The loop of one search. What changes from step to step are the `_Variables`."""

    step: ScoredStep
    forced: Tensor | None
    gain: float
    options: DecodingOptions
    normalized: bool

    def run(self, state: State, batch: int | Tensor) -> DecodingResult:
        """Run the search. The first step has one hypothesis per item and shows which entries of the state change."""
        position = ops.convert_to_tensor(0, "int32")
        start = ops.full((batch,), self.options.start_token, "int32")
        outputs, new_state = self.step(start, state)
        split = SplitState(state, new_state, self.options.beam_size)
        # One empty live hypothesis per item, and no finished ones: every score is -inf.
        zeros = ops.zeros((batch, 1), "float32")
        missing = ops.full((batch, self.options.num_best), -math.inf, "float32")
        live = Live(ops.zeros((batch, 1, self.options.max_length), "int32"), zeros, zeros)
        tokens = ops.zeros((batch, self.options.num_best, self.options.max_length), "int32")
        finished = Finished(tokens, missing, missing)
        variables = self._advance(position, live, finished, outputs, new_state, split)

        def body(position: Tensor, last: Tensor, live: Live, finished: Finished, moving: list[Tensor]) -> _Variables:
            outputs, new_state = self.step(last, split.join(moving))
            *advanced, new_moving = self._advance(position, live, finished, outputs, new_state, split)
            return *advanced, [keep_shape(new, old) for new, old in zip(new_moving, moving)]

        written, _, live, finished, moving = ops.while_loop(self._should_continue, body, variables)
        coverage = self._coverage(split.join(moving), self.options.beam_size)
        return rank_hypotheses(finished, live, coverage, written, self.options)

    def _should_continue(
        self, written: Tensor, last: Tensor, live: Live, finished: Finished, moving: list[Tensor]
    ) -> Tensor:
        best = best_future_scores(ops.max(live.totals, axis=1), written, self.gain, self.options)
        can_win = ops.any(best > finished.scores[:, -1])
        return ops.logical_and(written < self.options.max_length, can_win)

    def _advance(
        self,
        position: Tensor,
        live: Live,
        finished: Finished,
        outputs: tuple[Tensor, Tensor | None],
        state: State,
        split: SplitState,
    ) -> _Variables:
        """Extend all hypotheses by one token, and reorder the state to match."""
        (logits, scorers), beams = outputs, live.totals.shape[1]
        history = ops.reshape(live.tokens, (-1, self.options.max_length))
        next_tokens = score_next_tokens(logits, scorers, history, position, self.options, self.normalized)
        candidates = self._candidates(next_tokens, live, position)
        log_probs = self._log_probs(next_tokens, live, candidates)
        coverage = self._coverage(state, beams)
        finished = finish(finished, live, candidates, log_probs, coverage, position, self.options)
        live, parents, last = extend(live, candidates, log_probs, position, self.options)
        items = ops.expand_dims(ops.arange(ops.shape(parents)[0]), 1)
        rows = ops.reshape(parents + items * beams, (-1,))
        moving = [ops.take(entry, rows, axis=0) for entry in split.moving(state)]
        return position + 1, ops.reshape(last, (-1,)), live, finished, moving

    def _candidates(self, next_tokens: NextTokens, live: Live, position: Tensor) -> Candidates:
        """Return the best continuations: twice `beam_size`, so that enough stay live even if half of them end."""
        offsets = live.totals - ops.reshape(next_tokens.normalizer, (-1, live.totals.shape[1]))
        candidates = best_candidates(next_tokens.allowed, offsets, 2 * self.options.beam_size)
        if self.forced is None:
            return candidates
        # Keep only the forced token, if there is one. All earlier tokens were forced too, so there is one beam.
        forced = forced_at(self.forced, position)
        rows = ops.arange(ops.shape(offsets)[0]) * offsets.shape[1]
        total = ops.expand_dims(offsets[:, 0] + values_of(next_tokens.scores, rows, forced), 1)
        forced = ops.expand_dims(forced, 1)
        is_first = ops.arange(2 * self.options.beam_size) == 0
        return Candidates(
            totals=ops.where(forced > 0, ops.where(is_first, total, -math.inf), candidates.totals),
            beams=ops.where(forced > 0, 0, candidates.beams),
            tokens=ops.where(forced > 0, forced, candidates.tokens),
        )

    def _log_probs(self, next_tokens: NextTokens, live: Live, candidates: Candidates) -> Tensor:
        """Return the candidates' log-probabilities under the model alone, summed from the start."""
        if next_tokens.scores is next_tokens.logits:
            return candidates.totals
        beams = live.totals.shape[1]
        offsets = live.log_probs - ops.reshape(next_tokens.normalizer, (-1, beams))
        items = ops.expand_dims(ops.arange(ops.shape(offsets)[0]), 1)
        rows = candidates.beams + items * beams
        return pick(offsets, candidates.beams) + values_of(next_tokens.logits, rows, candidates.tokens)

    def _coverage(self, state: State, beams: int) -> Tensor | None:
        coverage = coverage_scores(state["model"], self.options)
        return None if coverage is None else ops.reshape(coverage, (-1, beams))


def pick(values: Tensor, index: Tensor) -> Tensor:
    """Look up `values[item, index[item, i]]`: `(batch, n, ...)` and `(batch, count)` to `(batch, count, ...)`."""
    items = ops.expand_dims(ops.arange(ops.shape(index)[0]), 1)
    flat = ops.reshape(values, (-1, *values.shape[2:]))
    return ops.take(flat, index + items * values.shape[1], axis=0)


def finish(
    finished: Finished,
    live: Live,
    candidates: Candidates,
    log_probs: Tensor,
    coverage: Tensor | None,
    position: Tensor,
    options: DecodingOptions,
) -> Finished:
    """Add the candidates that end and are among the best `beam_size`, and keep the best `num_best`.

    Args:
        log_probs: log-probabilities of the candidates, `(batch, count)`.
        coverage: the coverage penalty of each live hypothesis, `(batch, beams)`, or `None`.
        position: the position of the new token, a scalar.
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


def extend(
    live: Live, candidates: Candidates, log_probs: Tensor, position: Tensor, options: DecodingOptions
) -> tuple[Live, Tensor, Tensor]:
    """Turn the best candidates that do not end into live hypotheses.

    Returns:
        The live hypotheses, the indices of their parents, and their last tokens, both `(batch, beams)`.
    """
    open_totals = ops.where(candidates.tokens == options.end_token, -math.inf, candidates.totals)
    totals, index = ops.top_k(open_totals, options.beam_size)
    parents, last = pick(candidates.beams, index), pick(candidates.tokens, index)
    is_here = ops.arange(options.max_length) == position
    tokens = ops.where(is_here, ops.expand_dims(last, -1), pick(live.tokens, parents))
    log_probs = totals if log_probs is candidates.totals else pick(log_probs, index)
    return Live(tokens, totals, log_probs), parents, last


def rank_hypotheses(
    finished: Finished, live: Live, coverage: Tensor | None, written: Tensor, options: DecodingOptions
) -> DecodingResult:
    """Return the finished hypotheses, filled up to `num_best` with the best unfinished ones."""
    scores = penalize_length(live.totals, written, options)
    scores = scores if coverage is None else scores + coverage
    scores, index = ops.top_k(scores, options.num_best)
    unfinished = Finished(pick(live.tokens, index), scores, pick(live.log_probs, index))
    number = ops.sum(ops.cast(finished.scores > -math.inf, "int32"), axis=1, keepdims=True)
    ranks = ops.expand_dims(ops.arange(options.num_best), 0)
    source = ops.where(ranks < number, ranks, options.num_best + ranks - number)
    tokens, scores, log_probs = (pick(ops.concatenate(parts, axis=1), source) for parts in zip(finished, unfinished))
    ends = ops.cast(ops.argmax(ops.cast(tokens == options.end_token, "int32"), axis=-1), "int32") + 1
    return make_result(tokens, scores, log_probs, ops.where(ranks < number, ends, written), ranks < number)
