"""Sequences drawn at random from a model."""

from collections.abc import Callable, Sequence

import keras
from keras import ops

from attention_apps.decoding.candidates import best_candidates
from attention_apps.decoding.next_tokens import values_of
from attention_apps.decoding.options import DecodingOptions
from attention_apps.decoding.prefix import forced_tokens
from attention_apps.decoding.result import DecodingResult
from attention_apps.decoding.rollout import write_sequences
from attention_apps.decoding.scorers import Scorer, join_scorers
from attention_apps.decoding.state import State, Step, Tensor, as_tensors, batch_size

# Keeps a draw below the last cumulative probability, whatever the rounding.
_LARGEST_DRAW = 1.0 - 1e-6
_CHUNK = 64


def sample(
    step: Step,
    state: State,
    options: DecodingOptions,
    num_samples: int = 1,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: "int | keras.random.SeedGenerator | None" = None,
    scorers: Sequence[Scorer] = (),
    prefix: Tensor | None = None,
) -> DecodingResult:
    """Draws `num_samples` independent sequences for each item.

    Tokens are drawn from the distribution that beam search would rank them by: temperature, repetition penalty,
    scorers and bans all count. `beam_size` and `num_best` do not.

    Args:
        step: as for `beam_search`.
        state: as for `beam_search`.
        options: see `DecodingOptions`.
        num_samples: takes the place of `num_best` in the result.
        top_k: draw from the k most likely tokens only.
        top_p: draw from the smallest set of most likely tokens that has this probability (of what `top_k` left).
            On its own it has to sort the vocabulary at each step, which is slow; with `top_k` it is not.
        seed: an integer gives the same samples at each call, a `keras.random.SeedGenerator` new ones.
        scorers: see `Scorer`.
        prefix: forced tokens of each item, `(batch, length)`, padded with 0.

    Reference:
        Fan et al. 2018, section 5.4 (top-k); Holtzman et al. 2020, section 3.1 (top-p).
    """
    _check(num_samples, top_k, top_p)
    state = as_tensors(state)
    batch = batch_size(state)
    forced = forced_tokens(prefix, batch, options)
    step, state = join_scorers(step, state, scorers)
    draws = keras.random.uniform((options.max_length, batch * num_samples), 0.0, _LARGEST_DRAW, "float32", seed)
    return write_sequences(step, state, batch, forced, options, _chooser(draws, top_k, top_p), num_samples)


def _check(num_samples: int, top_k: int | None, top_p: float | None) -> None:
    if num_samples < 1:
        raise ValueError(f"`num_samples` must be at least 1. Received: num_samples={num_samples}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"`top_k` must be at least 1 or None. Received: top_k={top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"`top_p` must be above 0 and at most 1, or None. Received: top_p={top_p}")


def _chooser(draws: Tensor, top_k: int | None, top_p: float | None) -> Callable[[Tensor, Tensor], Tensor]:
    def choose(scores: Tensor, position: Tensor) -> Tensor:
        draw = ops.take(draws, position, axis=0)  # (R,)
        if top_k is None and top_p is None:
            return _invert_in_chunks(ops.softmax(scores, axis=-1), draw)
        scores, tokens = _most_likely(scores, top_k)
        weights = ops.exp(scores - scores[:, :1])
        if top_p is not None:
            up_to = ops.cumsum(weights, axis=-1)
            weights = ops.where(up_to - weights < top_p * up_to[:, -1:], weights, 0.0)
        return values_of(tokens, ops.arange(ops.shape(tokens)[0]), _invert(weights, draw))

    return choose


def _most_likely(scores: Tensor, top_k: int | None) -> tuple[Tensor, Tensor]:
    """The best `top_k` tokens, or all, in order: scores and token ids, `(rows, k)`."""
    if top_k is None:
        return ops.top_k(scores, ops.shape(scores)[-1])
    best = best_candidates(scores, ops.zeros((ops.shape(scores)[0], 1)), top_k)
    return best.totals, best.tokens


def _invert_in_chunks(probabilities: Tensor, draws: Tensor) -> Tensor:
    """As `_invert`, for a whole vocabulary: first a chunk is drawn, then a token of it."""
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
    """The first index at which the cumulative share exceeds the draw; never one of weight 0."""
    cumulative = ops.cumsum(weights, axis=-1)
    reached = cumulative > ops.expand_dims(draws, 1) * cumulative[:, -1:]
    reached = ops.logical_and(reached, weights > 0)
    size = ops.shape(weights)[-1]
    return ops.min(ops.where(reached, ops.arange(size), size - 1), axis=-1)
