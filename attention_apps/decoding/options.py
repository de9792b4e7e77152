"""The options of a search, and how they score next tokens and whole hypotheses.

A search scores all next tokens, takes the best candidates or the forced tokens, and ranks hypotheses by their sums
after length and coverage penalties.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

import numpy as np
from keras import ops

from attention_apps.checks import require, require_at_least, require_between
from attention_apps.constants import END, START
from attention_apps.decoding.scorers import State, Tensor

# No task needs more. A preset that asked for more could exhaust the memory.
MAX_BEAM_SIZE, MAX_LENGTH = 1000, 10_000
# The search has operations for each token of an n-gram.
MAX_NGRAM_SIZE = 100

LengthPenaltyKind = Literal["gnmt", "average"]
# `best_candidates` looks for the largest scores in chunks of this size.
_CHUNK = 32


@dataclasses.dataclass(frozen=True)
class DecodingOptions:
    """Options of `beam_search` and `sample`. Lengths count the end token but not the start token.

    A hypothesis is ranked by its score: `sum / penalty(length) + coverage_penalty · Σ_s log(min(coverage_s, 1))`.
    The sum runs over its tokens. Each token adds its log-probability under `softmax(logits / temperature)`, multiplied
    by the repetition penalty if the hypothesis already contains the token, plus the weighted scores of the scorers.
    Banning a token does not change the scores of the others.

    Args:
        beam_size: number of live hypotheses, at most 1,000. 1 is greedy search.
        max_length: maximum length of a hypothesis, at most 10,000.
        min_length: minimum length. The end token is banned before it.
        num_best: number of hypotheses to return per item, at most `beam_size`.
        length_penalty: α. 0 ranks by plain sums; larger values favor longer hypotheses.
        length_penalty_kind: `"gnmt"` for `((5 + length) / 6)^α`, `"average"` for `length^α`.
        coverage_penalty: β of GNMT. Needs `state["coverage"]`, the summed attention weights, `(batch, source)`.
            Source positions with a coverage of exactly 0 count as padding.
        temperature: divides the logits.
        repetition_penalty: multiplies the log-probability of tokens that the hypothesis already contains. Values
            above 1 make repetitions less likely, as in CTRL.
        no_repeat_ngram_size: no n-gram of this size, at most 100, occurs twice. 0 turns this off.
        forced_prefix: token ids that every hypothesis starts with. They count in lengths and scores, and may be
            banned tokens. For a different prefix per item, use the argument `prefix` of the search.
        banned_tokens: token ids that are never generated.
        start_token: input of the first step. It is not part of the output.
        end_token: ends a hypothesis. It cannot be 0, which is padding.

    Reference:
        Wu et al., Google's Neural Machine Translation System (2016), equation 14, for both penalties;
        Keskar et al., CTRL (2019), section 4.1.
    """

    beam_size: int = 5
    max_length: int = 20
    min_length: int = 1
    num_best: int = 1
    length_penalty: float = 0.0
    length_penalty_kind: LengthPenaltyKind = "gnmt"
    coverage_penalty: float = 0.0
    temperature: float = 1.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    forced_prefix: tuple[int, ...] = ()
    banned_tokens: tuple[int, ...] = ()
    start_token: int = START
    end_token: int = END

    def __post_init__(self) -> None:
        for name in ("forced_prefix", "banned_tokens"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        require_at_least(self, 1, "beam_size", "max_length")
        require(self.beam_size <= MAX_BEAM_SIZE, "beam_size", f"at most {MAX_BEAM_SIZE}", self.beam_size)
        require(self.max_length <= MAX_LENGTH, "max_length", f"at most {MAX_LENGTH}", self.max_length)
        fits, expected = 0 <= self.min_length <= self.max_length, f"between 0 and {self.max_length}, `max_length`"
        require(fits, "min_length", expected, self.min_length)
        fits, expected = 1 <= self.num_best <= self.beam_size, f"between 1 and {self.beam_size}, `beam_size`"
        require(fits, "num_best", expected, self.num_best)
        require_between(self, 0, MAX_NGRAM_SIZE, "no_repeat_ngram_size")
        kinds = get_args(LengthPenaltyKind)
        expected = " or ".join(f'"{kind}"' for kind in kinds)
        require(self.length_penalty_kind in kinds, "length_penalty_kind", expected, self.length_penalty_kind)
        require(math.isfinite(self.length_penalty), "length_penalty", "a finite number", self.length_penalty)
        fits, expected = 0 <= self.coverage_penalty < math.inf, "a finite number of at least 0"
        require(fits, "coverage_penalty", expected, self.coverage_penalty)
        for name in ("temperature", "repetition_penalty"):
            value = getattr(self, name)
            require(0 < value < math.inf, name, "a finite number above 0", value)
        require(self.start_token >= 0, "start_token", "a token id of at least 0", self.start_token)
        require(self.end_token >= 1, "end_token", "a token id of at least 1", self.end_token)
        for name, least in (("banned_tokens", 0), ("forced_prefix", 1)):
            value = getattr(self, name)
            require(all(token >= least for token in value), name, f"token ids of at least {least}", value)
        fits, expected = len(self.forced_prefix) <= self.max_length, f"no longer than {self.max_length}, `max_length`"
        require(fits, "forced_prefix", expected, self.forced_prefix)


class DecodingResult(NamedTuple):
    """The hypotheses of each item of a batch, as tensors. A named tuple, so that a compiled function can return it.

    Beam search returns the best hypothesis first, and finished ones before unfinished ones. Samples are in the order
    in which they were drawn. If there are fewer hypotheses than requested, the rest have length 0 and score -inf.

    Attributes:
        token_ids: int32 `(batch, num_best, max_length)`. Excludes the start token, includes the end token, and is
            padded with 0.
        scores: float32 `(batch, num_best)`. The ranking is by these; see `DecodingOptions`.
        log_probs: float32 `(batch, num_best)`. The sum of the tokens' log-probabilities under the model's
            `softmax(logits / temperature)`, without penalties, bans and scorers.
        lengths: int32 `(batch, num_best)`. Includes the end token.
        finished: bool `(batch, num_best)`. False if the maximum length was reached before the end token.
    """

    token_ids: Tensor
    scores: Tensor
    log_probs: Tensor
    lengths: Tensor
    finished: Tensor


def make_result(
    token_ids: Tensor, scores: Tensor, log_probs: Tensor, lengths: Tensor, finished: Tensor
) -> DecodingResult:
    """Build a result in which hypotheses of score -inf, which do not exist, are empty."""
    exists = scores > -math.inf
    return DecodingResult(
        token_ids=ops.where(ops.expand_dims(exists, -1), token_ids, 0),
        scores=scores,
        log_probs=ops.where(exists, log_probs, -math.inf),
        lengths=ops.where(exists, lengths, 0),
        finished=ops.logical_and(finished, exists),
    )


class NextTokens(NamedTuple):
    """Scores of every next token of every hypothesis, `(rows, vocabulary)`, not normalized yet.

    Attributes:
        logits: the model's logits, after temperature.
        scores: `logits` with the repetition penalty and the scorers.
        allowed: `scores`, with -inf for banned tokens.
        normalizer: `(rows, 1)`, to be subtracted from any of the above to get log-probabilities.
    """

    logits: Tensor
    scores: Tensor
    allowed: Tensor
    normalizer: Tensor


def score_next_tokens(
    logits: Tensor,
    scorers: Tensor | None,
    history: Tensor,
    written: Tensor,
    options: DecodingOptions,
    normalized: bool = False,
) -> NextTokens:
    """Apply all options that change the scores of next tokens.

    The normalizer is subtracted later, and only from the few tokens that are chosen. This saves a pass over the
    vocabulary.

    Args:
        logits: logits or log-probabilities, `(rows, vocabulary)`.
        scorers: the weighted sum of the scorers, `(rows, vocabulary)`, or `None`.
        history: the tokens so far, int32 `(rows, max_length)`.
        written: the number of tokens so far, a scalar.
        normalized: whether the logits are log-probabilities.
    """
    logits = ops.cast(logits, "float32")
    if logits.shape[-1] is not None:
        for name in ("end_token", "banned_tokens", "forced_prefix"):
            value = getattr(options, name)
            largest = max((value,) if isinstance(value, int) else value, default=0)
            require(largest < logits.shape[-1], name, f"below {logits.shape[-1]}, the size of the vocabulary", value)
    logits = logits if options.temperature == 1 else logits / options.temperature
    if normalized and options.temperature == 1:
        normalizer = ops.zeros_like(logits[:, :1])
    else:
        normalizer = ops.logsumexp(logits, axis=-1, keepdims=True)
    scores = logits
    if options.repetition_penalty != 1:
        scores = _penalize_repetition(scores, normalizer, history, written, options.repetition_penalty)
    scores = scores if scorers is None else scores + scorers
    allowed = scores
    if options.no_repeat_ngram_size:
        allowed = _block_ngrams(allowed, history, written, options.no_repeat_ngram_size)
    if options.banned_tokens or options.min_length > 1:
        ids = ops.arange(ops.shape(logits)[-1])
        banned = ops.logical_and(ids == options.end_token, written + 1 < options.min_length)
        if options.banned_tokens:
            tokens = ops.convert_to_tensor(options.banned_tokens, "int32")
            banned = ops.logical_or(banned, ops.any(ops.expand_dims(ids, 1) == tokens, axis=1))
        allowed = allowed + ops.where(banned, -math.inf, 0.0)
    return NextTokens(logits, scores, allowed, normalizer)


def values_of(table: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
    """Look up `table[rows, tokens]` in a table of shape `(rows, vocabulary)`."""
    return ops.take(ops.reshape(table, (-1,)), rows * ops.shape(table)[-1] + tokens)


def _penalize_repetition(
    scores: Tensor, normalizer: Tensor, history: Tensor, written: Tensor, penalty: float
) -> Tensor:
    rows = ops.expand_dims(ops.arange(ops.shape(history)[0]), 1)
    log_probs = values_of(scores, rows, history) - normalizer  # (R, T)
    is_written = ops.arange(history.shape[1]) < written
    penalized = penalty * log_probs + normalizer
    if penalty > 1:
        return _scatter(scores, history, ops.where(is_written, penalized, math.inf), "min")
    return _scatter(scores, history, ops.where(is_written, penalized, -math.inf), "max")


def _block_ngrams(scores: Tensor, history: Tensor, written: Tensor, size: int) -> Tensor:
    """Ban each token that followed an earlier occurrence of the last `size - 1` tokens."""
    positions = ops.arange(history.shape[1])
    repeats = ops.logical_and(positions >= size - 1, positions < written)  # (T,)
    for offset in range(1, size):
        last = ops.take(history, ops.maximum(written - offset, 0), axis=1)
        repeats = ops.logical_and(repeats, ops.roll(history, offset, axis=1) == ops.expand_dims(last, 1))  # (R, T)
    repeats = ops.broadcast_to(repeats, ops.shape(history))
    return _scatter(scores, history, ops.where(repeats, -math.inf, math.inf), "min")


def _scatter(table: Tensor, tokens: Tensor, updates: Tensor, reduction: Literal["min", "max"]) -> Tensor:
    """Merge `updates[row, i]` into `table[row, tokens[row, i]]`. The order does not matter: it is a reduction."""
    rows = ops.broadcast_to(ops.expand_dims(ops.arange(ops.shape(tokens)[0]), 1), ops.shape(tokens))
    indices = ops.reshape(ops.stack([rows, tokens], axis=-1), (-1, 2))
    return ops.scatter_update(table, indices, ops.reshape(updates, (-1,)), reduction=reduction)


class Candidates(NamedTuple):
    """Continuations of each item's hypotheses, best first, all `(batch, count)`. A total of -inf marks a missing one.

    Attributes:
        totals: the sum over the tokens, including the new one.
        beams: the index of the hypothesis that is continued.
        tokens: the new token.
    """

    totals: Tensor
    beams: Tensor
    tokens: Tensor


def best_candidates(scores: Tensor, offsets: Tensor, count: int) -> Candidates:
    """Find the `count` largest values of `scores + offsets` for each item.

    A top-k over a long row is slow on a CPU. The k largest values lie in the k chunks with the largest maxima. So a
    fast pass computes the maximum of each chunk, and the top-k only looks into those chunks.

    Args:
        scores: `(batch · beams, vocabulary)`.
        offsets: `(batch, beams)`, added to all scores of a hypothesis. -inf if the hypothesis does not exist.
    """
    beams = offsets.shape[1]
    vocabulary = scores.shape[-1]
    # Chunks only pay off if the top-k skips most of them.
    chunk = 1 if vocabulary is not None and beams * vocabulary < 4 * _CHUNK * count else _CHUNK
    chunks, per_beam = _split_into_chunks(scores, chunk, -(-count // beams))
    maxima = ops.reshape(chunks if chunk == 1 else ops.max(chunks, axis=-1), (-1, beams, per_beam))
    totals, best = ops.top_k(ops.reshape(_add_offsets(maxima, offsets), (-1, beams * per_beam)), count)  # (B, count)
    tokens = best % per_beam
    if chunk > 1:
        items = ops.expand_dims(ops.arange(ops.shape(offsets)[0]), 1)
        values = ops.take(chunks, best + items * (beams * per_beam), axis=0)  # (B, count, chunk)
        values = _add_offsets(values, ops.take(ops.reshape(offsets, (-1,)), best // per_beam + items * beams))
        totals, index = ops.top_k(ops.reshape(values, (-1, count * chunk)), count)
        best = ops.take(ops.reshape(best, (-1,)), index // chunk + items * count)
        tokens = best % per_beam * chunk + index % chunk
    return Candidates(totals, best // per_beam, ops.where(totals > -math.inf, tokens, 0))


def _split_into_chunks(scores: Tensor, chunk: int, least: int) -> tuple[Tensor, int | Tensor]:
    """Split rows into chunks, `(rows · chunks, chunk)`, and return the number of chunks per row, at least `least`.

    Rows are padded with -inf to whole chunks.
    """
    size = ops.shape(scores)[-1]
    chunks = -(-size // chunk)
    chunks = max(chunks, least) if isinstance(size, int) else ops.maximum(chunks, least)
    missing = chunks * chunk - size
    if not isinstance(missing, int) or missing > 0:
        scores = ops.pad(scores, ((0, 0), (0, missing)), constant_values=-math.inf)
    return ops.reshape(scores, (-1, chunk)), chunks


def _add_offsets(values: Tensor, offsets: Tensor) -> Tensor:
    """`values + offsets`, and -inf for all values of a missing hypothesis, even if they are NaN."""
    offsets = ops.expand_dims(offsets, -1)
    return ops.where(offsets > -math.inf, values + offsets, -math.inf)


def forced_tokens(prefix: Tensor | None, batch: int | Tensor, options: DecodingOptions) -> Tensor | None:
    """The forced tokens of each item, int32 `(batch, length + 1)`, padded with 0. `None` if there are none.

    Args:
        prefix: `(batch, length)`. A row ends at its first 0. Replaces `options.forced_prefix`.
    """
    if prefix is None and not options.forced_prefix:
        return None
    if prefix is None:
        shape = (batch, len(options.forced_prefix))
        prefix = ops.broadcast_to(ops.convert_to_tensor([options.forced_prefix], "int32"), shape)
    elif options.forced_prefix:
        raise ValueError("`prefix` must not be given together with `options.forced_prefix`. Received: both")
    prefix = ops.cast(prefix, "int32")
    if prefix.shape[1] is not None and prefix.shape[1] > options.max_length:
        raise ValueError(
            f"`prefix` must be no longer than {options.max_length}, `max_length`. Received: shape {tuple(prefix.shape)}"
        )
    contiguous = ops.cumprod(ops.cast(prefix > 0, "int32"), axis=1)
    return ops.concatenate([prefix * contiguous, ops.zeros((batch, 1), "int32")], axis=1)


def forced_at(forced: Tensor, position: Tensor) -> Tensor:
    """The token forced at a position, `(rows,)`. 0 where any token may follow."""
    return ops.take(forced, ops.minimum(position, ops.shape(forced)[1] - 1), axis=1)


def length_penalties(options: DecodingOptions) -> np.ndarray:
    """The divisors for the lengths 1 to `max_length`, float32 `(max_length,)`."""
    lengths = np.arange(1, options.max_length + 1, dtype="float64")
    base = (5 + lengths) / 6 if options.length_penalty_kind == "gnmt" else lengths
    return (base**options.length_penalty).astype("float32")


def penalize_length(totals: Tensor, lengths: Tensor, options: DecodingOptions) -> Tensor:
    """Divide `totals` by the penalties of `lengths`, which are at least 1 and broadcast to `totals`."""
    if options.length_penalty == 0:
        return totals
    return totals / ops.take(ops.convert_to_tensor(length_penalties(options)), lengths - 1)


def coverage_scores(state: State, options: DecodingOptions) -> Tensor | None:
    """The coverage penalty of each hypothesis, `(rows,)`, or `None` if the option is off."""
    if not options.coverage_penalty:
        return None
    if not isinstance(state, Mapping) or "coverage" not in state:
        found = sorted(state) if isinstance(state, Mapping) else type(state).__name__
        raise ValueError(f'`coverage_penalty` needs an entry "coverage" in the state. Received: state with {found}')
    coverage = ops.cast(state["coverage"], "float32")
    seen = coverage > 0
    logs = ops.log(ops.minimum(ops.where(seen, coverage, 1.0), 1.0))
    return options.coverage_penalty * ops.sum(logs, axis=-1)


def best_future_scores(totals: Tensor, written: Tensor, gain: float, options: DecodingOptions) -> Tensor:
    """An upper bound on the score that a hypothesis can still reach, over all lengths at which it can end.

    Args:
        totals: the sums over the tokens so far, `(batch,)`.
        written: the number of tokens so far, a scalar.
        gain: the most that one more token can add.
    """
    if gain == 0 and options.length_penalty == 0:
        return totals
    if math.isinf(gain):
        return ops.where(totals > -math.inf, math.inf, -math.inf)
    lengths = ops.arange(1, options.max_length + 1)
    possible = ops.logical_and(lengths > written, lengths >= options.min_length)
    gains = gain * ops.cast(lengths - written, "float32")
    scores = (ops.expand_dims(totals, 1) + gains) / ops.convert_to_tensor(length_penalties(options))  # (B, T)
    return ops.max(ops.where(possible, scores, -math.inf), axis=1)
