"""From the sum over a hypothesis' tokens to its score: length and coverage penalties."""

import math
from collections.abc import Mapping

import numpy as np
from keras import ops

from attention_apps.decoding.options import DecodingOptions
from attention_apps.decoding.state import State, Tensor


def length_penalties(options: DecodingOptions) -> np.ndarray:
    """The divisors of the lengths 1 to `max_length`, float32 `(max_length,)`."""
    lengths = np.arange(1, options.max_length + 1, dtype="float64")
    base = (5 + lengths) / 6 if options.length_penalty_kind == "gnmt" else lengths
    return (base**options.length_penalty).astype("float32")


def penalize_length(totals: Tensor, lengths: Tensor, options: DecodingOptions) -> Tensor:
    """`totals` divided by the penalties of `lengths`, which are at least 1 and broadcast to `totals`."""
    if options.length_penalty == 0:
        return totals
    return totals / ops.take(ops.convert_to_tensor(length_penalties(options)), lengths - 1)


def coverage_scores(state: State, options: DecodingOptions) -> Tensor | None:
    """The coverage penalty of each hypothesis, `(rows,)`, or `None` where the option is off."""
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
    """The best score that a hypothesis can still end with, whichever of the remaining lengths it ends at.

    Args:
        totals: `(batch,)`, sums over the tokens so far.
        written: how many tokens that is, a scalar.
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
