"""Writing one sequence for each row, a token at a time: what greedy search and sampling share."""

import math
from collections.abc import Callable
from typing import NamedTuple

from keras import ops, tree

from attention_apps.decoding.hypotheses import as_result
from attention_apps.decoding.next_tokens import score_next_tokens, values_of
from attention_apps.decoding.options import DecodingOptions
from attention_apps.decoding.penalties import coverage_scores, penalize_length
from attention_apps.decoding.prefix import forced_at
from attention_apps.decoding.result import DecodingResult
from attention_apps.decoding.state import State, Step, Tensor, as_tensors, keep_shape, repeat_rows, repeat_state


class Rows(NamedTuple):
    """The sequences so far: tokens `(rows, max_length)`, the rest `(rows,)`; ended ones are frozen."""

    tokens: Tensor
    last: Tensor
    totals: Tensor
    log_probs: Tensor
    coverage: Tensor
    lengths: Tensor
    finished: Tensor


def write_sequences(
    step: Step,
    state: State,
    batch: int | Tensor,
    forced: Tensor | None,
    options: DecodingOptions,
    choose: Callable[[Tensor, Tensor], Tensor],
    copies: int = 1,
) -> DecodingResult:
    """Writes `copies` sequences for each item.

    Args:
        step: of `join_scorers`.
        forced: of `forced_tokens`.
        choose: takes the scores of all tokens, `(rows, vocabulary)`, and the position; returns tokens, `(rows,)`.
    """
    state = repeat_state(as_tensors(state), copies)
    forced = None if forced is None else repeat_rows(forced, copies)

    def body(position: Tensor, rows: Rows, entries: list[Tensor]) -> tuple[Tensor, Rows, list[Tensor]]:
        (logits, scorers), new_state = step(rows.last, tree.pack_sequence_as(state, entries))
        rows = _write(rows, logits, scorers, new_state["model"], forced, position, options, choose)
        return position + 1, rows, [keep_shape(new, old) for new, old in zip(tree.flatten(new_state), entries)]

    def goes_on(position: Tensor, rows: Rows, entries: list[Tensor]) -> Tensor:
        return ops.logical_and(position < options.max_length, ops.any(_is_open(rows)))

    start = (ops.convert_to_tensor(0, "int32"), _start(batch * copies, options), tree.flatten(state))
    _, rows, _ = ops.while_loop(goes_on, body, start)
    scores = penalize_length(rows.totals, ops.maximum(rows.lengths, 1), options) + rows.coverage
    parts = (rows.tokens, scores, rows.log_probs, rows.lengths, rows.finished)
    return as_result(*(ops.reshape(part, (-1, copies, *part.shape[1:])) for part in parts))


def _start(number: int | Tensor, options: DecodingOptions) -> Rows:
    zeros, lengths = ops.zeros((number,), "float32"), ops.zeros((number,), "int32")
    tokens = ops.zeros((number, options.max_length), "int32")
    last = ops.full((number,), options.start_token, "int32")
    return Rows(tokens, last, zeros, zeros, zeros, lengths, ops.zeros((number,), "bool"))


def _is_open(rows: Rows) -> Tensor:
    """True where a sequence goes on: it has not ended, and there was a token to write."""
    return ops.logical_and(ops.logical_not(rows.finished), rows.totals > -math.inf)


def _write(
    rows: Rows,
    logits: Tensor,
    scorers: Tensor | None,
    state: State,
    forced: Tensor | None,
    position: Tensor,
    options: DecodingOptions,
    choose: Callable[[Tensor, Tensor], Tensor],
) -> Rows:
    """Writes one more token into every open row."""
    next_tokens = score_next_tokens(logits, scorers, rows.tokens, position, options)
    index = ops.arange(ops.shape(rows.tokens)[0])
    token = choose(next_tokens.allowed, position)
    scores = values_of(next_tokens.allowed, index, token)
    if forced is not None:
        wanted = forced_at(forced, position)
        token = ops.where(wanted > 0, wanted, token)
        scores = ops.where(wanted > 0, values_of(next_tokens.scores, index, token), scores)
    normalizer = next_tokens.normalizer[:, 0]
    is_open, coverage = _is_open(rows), coverage_scores(state, options)
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
