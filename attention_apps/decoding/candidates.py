"""The best continuations of all hypotheses of an item."""

import math
from typing import NamedTuple

from keras import ops

from attention_apps.decoding.state import Tensor

_CHUNK = 32


class Candidates(NamedTuple):
    """Continuations of each item, best first, all `(batch, count)`; -inf marks those that do not exist.

    Attributes:
        totals: sums over the tokens, this one included.
        beams: which hypothesis is continued.
        tokens: with which token.
    """

    totals: Tensor
    beams: Tensor
    tokens: Tensor


def best_candidates(scores: Tensor, offsets: Tensor, count: int) -> Candidates:
    """The `count` largest of `scores + offsets` for each item.

    A top-k over a long row is slow on a CPU. The k largest values are among those of the k chunks with the largest
    maxima, so one quick pass of maxima comes first, and the top-k sees little.

    Args:
        scores: `(batch · beams, vocabulary)`.
        offsets: `(batch, beams)`, added to all scores of a hypothesis; -inf if it does not exist.
    """
    beams = offsets.shape[1]
    chunk = _chunk_size(scores.shape[-1], beams, count)
    chunks, per_beam = _split_into_chunks(scores, chunk, -(-count // beams))
    maxima = ops.reshape(chunks if chunk == 1 else ops.max(chunks, axis=-1), (-1, beams, per_beam))
    totals, best = ops.top_k(ops.reshape(_shift(maxima, offsets), (-1, beams * per_beam)), count)  # (B, count)
    tokens = best % per_beam
    if chunk > 1:
        items = ops.expand_dims(ops.arange(ops.shape(offsets)[0]), 1)
        values = ops.take(chunks, best + items * (beams * per_beam), axis=0)  # (B, count, chunk)
        values = _shift(values, ops.take(ops.reshape(offsets, (-1,)), best // per_beam + items * beams))
        totals, index = ops.top_k(ops.reshape(values, (-1, count * chunk)), count)
        best = ops.take(ops.reshape(best, (-1,)), index // chunk + items * count)
        tokens = best % per_beam * chunk + index % chunk
    return Candidates(totals, best // per_beam, ops.where(totals > -math.inf, tokens, 0))


def _chunk_size(vocabulary: int | None, beams: int, count: int) -> int:
    """Chunks pay only if few of them are looked into."""
    is_small = vocabulary is not None and beams * vocabulary < 4 * _CHUNK * count
    return 1 if is_small else _CHUNK


def _split_into_chunks(scores: Tensor, chunk: int, least: int) -> tuple[Tensor, int | Tensor]:
    """`(rows · chunks, chunk)`, padded with -inf to whole chunks, and `chunks`, no fewer than `least` for each row."""
    size = ops.shape(scores)[-1]
    chunks = -(-size // chunk)
    chunks = max(chunks, least) if isinstance(size, int) else ops.maximum(chunks, least)
    missing = chunks * chunk - size
    if not isinstance(missing, int) or missing > 0:
        scores = ops.pad(scores, ((0, 0), (0, missing)), constant_values=-math.inf)
    return ops.reshape(scores, (-1, chunk)), chunks


def _shift(values: Tensor, offsets: Tensor) -> Tensor:
    """`values + offsets`; whatever a hypothesis that does not exist was scored, a NaN too, becomes -inf."""
    offsets = ops.expand_dims(offsets, -1)
    return ops.where(offsets > -math.inf, values + offsets, -math.inf)
