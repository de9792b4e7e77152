"""Beam search, batched and whole in one graph."""

import math
from collections.abc import Sequence

from keras import ops

from attention_apps.decoding.candidates import Candidates, best_candidates
from attention_apps.decoding.hypotheses import (
    Finished,
    Live,
    extend,
    finish,
    pick,
    start_finished,
    start_live,
    to_result,
)
from attention_apps.decoding.next_tokens import NextTokens, score_next_tokens, values_of
from attention_apps.decoding.options import DecodingOptions
from attention_apps.decoding.penalties import best_future_scores, coverage_scores
from attention_apps.decoding.prefix import forced_at, forced_tokens
from attention_apps.decoding.result import DecodingResult
from attention_apps.decoding.rollout import write_sequences
from attention_apps.decoding.scorers import Scorer, join_scorers, largest_gain
from attention_apps.decoding.state import SplitState, State, Step, Tensor, as_tensors, batch_size, keep_shape

_Variables = tuple[Tensor, Tensor, Live, Finished, list[Tensor]]  # written, last tokens, hypotheses, state


def beam_search(
    step: Step,
    state: State,
    options: DecodingOptions,
    scorers: Sequence[Scorer] = (),
    prefix: Tensor | None = None,
) -> DecodingResult:
    """Writes the sequences that score best, keeping `beam_size` hypotheses of each item alive.

    Of all continuations, those with the end token that are among the best `beam_size` finish and are frozen, and
    the best `beam_size` others live on. The search stops when no live hypothesis of any item can still get among
    its `num_best`, or at `max_length`. With `beam_size=1` it is greedy: the best token is written, until that is
    the end token.

    Args:
        step: `step(token, state) -> (logits, state)`, `(rows,)` to `(rows, vocabulary)`; logits or
            log-probabilities. Entries of the state that depend on the source only are best handed back as the same
            tensor objects: they are then left alone, where others are reordered with the hypotheses.
        state: nested dicts of tensors with the batch axis first, one row for each item. The step gets them with a row
            for each hypothesis, those of an item side by side; but what is below a key `"per_item"` stays as it is.
        options: see `DecodingOptions`.
        scorers: see `Scorer`.
        prefix: forced tokens of each item, `(batch, length)`, padded with 0.
    """
    state = as_tensors(state)
    batch = batch_size(state)
    forced = forced_tokens(prefix, batch, options)
    gain = largest_gain(scorers)
    step, state = join_scorers(step, state, scorers)
    if options.beam_size == 1:
        return write_sequences(step, state, batch, forced, options, choose=_most_likely)
    return _BeamSearch(step, forced, gain, options).run(as_tensors(state), batch)


def _most_likely(scores: Tensor, position: Tensor) -> Tensor:
    return ops.cast(ops.argmax(scores, axis=-1), "int32")


class _BeamSearch:
    """One search; what changes from step to step are the `_Variables` of its loop."""

    def __init__(self, step: Step, forced: Tensor | None, gain: float, options: DecodingOptions) -> None:
        self.step = step
        self.forced = forced
        self.gain = gain
        self.options = options

    def run(self, state: State, batch: int | Tensor) -> DecodingResult:
        """The first step has one hypothesis for each item; it also shows what of the state changes."""
        position = ops.convert_to_tensor(0, "int32")
        live, finished = start_live(batch, self.options), start_finished(batch, self.options)
        start = ops.full((batch,), self.options.start_token, "int32")
        outputs, new_state = self.step(start, state)
        split = SplitState(state, new_state, self.options.beam_size)
        variables = self._advance(position, live, finished, outputs, new_state, split)

        def body(position: Tensor, last: Tensor, live: Live, finished: Finished, moving: list[Tensor]) -> _Variables:
            outputs, new_state = self.step(last, split.join(moving))
            *advanced, new_moving = self._advance(position, live, finished, outputs, new_state, split)
            return *advanced, [keep_shape(new, old) for new, old in zip(new_moving, moving)]

        written, _, live, finished, moving = ops.while_loop(self._goes_on, body, variables)
        coverage = self._coverage(split.join(moving), self.options.beam_size)
        return to_result(finished, live, coverage, written, self.options)

    def _goes_on(self, written: Tensor, last: Tensor, live: Live, finished: Finished, moving: list[Tensor]) -> Tensor:
        best = best_future_scores(ops.max(live.totals, axis=1), written, self.gain, self.options)
        can_win = ops.any(best > finished.scores[:, -1])
        return ops.logical_and(written < self.options.max_length, can_win)

    def _advance(
        self, position: Tensor, live: Live, finished: Finished, outputs: tuple, state: State, split: SplitState
    ) -> _Variables:
        """Takes all hypotheses one token further, and the state with them."""
        (logits, scorers), beams = outputs, live.totals.shape[1]
        history = ops.reshape(live.tokens, (-1, self.options.max_length))
        next_tokens = score_next_tokens(logits, scorers, history, position, self.options)
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
        """The best continuations: as many as can all end and still leave `beam_size` that do not."""
        offsets = live.totals - ops.reshape(next_tokens.normalizer, (-1, live.totals.shape[1]))
        candidates = best_candidates(next_tokens.allowed, offsets, 2 * self.options.beam_size)
        if self.forced is None:
            return candidates
        return self._force(candidates, forced_at(self.forced, position), next_tokens.scores, offsets)

    def _force(self, candidates: Candidates, forced: Tensor, scores: Tensor, offsets: Tensor) -> Candidates:
        """Leaves but the forced token: as long as all were forced, the first hypothesis is the only one."""
        rows = ops.arange(ops.shape(offsets)[0]) * offsets.shape[1]
        total = ops.expand_dims(offsets[:, 0] + values_of(scores, rows, forced), 1)
        forced = ops.expand_dims(forced, 1)
        is_first = ops.arange(2 * self.options.beam_size) == 0
        return Candidates(
            totals=ops.where(forced > 0, ops.where(is_first, total, -math.inf), candidates.totals),
            beams=ops.where(forced > 0, 0, candidates.beams),
            tokens=ops.where(forced > 0, forced, candidates.tokens),
        )

    def _log_probs(self, next_tokens: NextTokens, live: Live, candidates: Candidates) -> Tensor:
        """The model's own log-probabilities of the candidates, from the start."""
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
