"""Attention weights that depend on those of earlier target positions: coverage and location-sensitive attention."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from keras import ops

from attention_apps.layers.sequence_ops import chunked_loop, scan_time

# Elements of the hidden layer per chunk: few enough for a CPU's cache.
_CHUNK_SIZE = 2**20
# Adjacent outputs of a convolution that one row of the matrix product computes.
_OUTPUTS_PER_ROW = 32


def recurrent_attention_weights(
    query, keys, state, mask, filters, feature_kernel, score_kernel, normalize, normalize_gradient, adds_up=False
):
    """Normalize the scores v · tanh(q + k + F f), one target position after the other.

    The features f of a source position are the convolved state: the weights of the previous target position or, if
    `adds_up`, the sum of all earlier weights. Only the weights are kept for the gradient. The loop over target
    positions processes the batch in chunks of rows, so that the hidden layer (recomputed for the gradient) and the
    gradient of the keys stay in a CPU's cache.

    Args:
        query: Projected queries, `(batch, target, units)`.
        keys: Projected keys, `(batch, source, units)`.
        state: `(batch, source)`.
        mask: Boolean `(batch, source)`, or `None`.
        filters: Result of `unroll_filters`, or `None` if the state itself is the only feature.
        feature_kernel: F, `(features, units)`.
        score_kernel: v, `(units,)`.
        normalize: Computes weights from `(scores, state, mask)`, all `(batch, source)`.
        normalize_gradient: Computes the gradient by the scores from `(scores, weights, upstream)`.
        adds_up: Whether the state is the sum of all earlier weights.

    Returns:
        `(batch, target, source)`, in the state's dtype.
    """
    recurrence = _Recurrence(normalize, normalize_gradient, adds_up)
    mask = ops.ones_like(state) if mask is None else ops.cast(mask, state.dtype)
    shared = [ops.cast(feature_kernel, keys.dtype), ops.cast(score_kernel, keys.dtype)]
    shared += [] if filters is None else [filters]

    @ops.custom_gradient
    def compute(*arrays):
        # In eager mode, TensorFlow's tape would otherwise keep every intermediate result of the forward pass.
        query, keys, state, mask, *shared = map(ops.stop_gradient, arrays)
        rows = (query, keys, state, mask)
        (weights,), _ = _in_chunks(lambda rows, _: ((recurrence.weights(rows, shared),), ()), rows, (), 1, state.dtype)

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream  # (B, T, S)

            def add(rows, totals):
                by_rows, by_shared = recurrence.gradients(rows, shared)
                return by_rows, tuple(total + new for total, new in zip(totals, by_shared, strict=True))

            totals = tuple(ops.zeros_like(array, dtype=state.dtype) for array in shared)
            by_rows, totals = _in_chunks(add, (*rows, weights, upstream), totals, 3, state.dtype)
            found = (*by_rows, ops.zeros_like(mask), *totals)
            return tuple(ops.cast(one, array.dtype) for one, array in zip(found, arrays, strict=True))

        return weights, gradient

    return compute(query, keys, state, mask, *shared)


class _Recurrence(NamedTuple):
    """The loop over target positions, and the same loop backward for the gradient."""

    normalize: Callable
    normalize_gradient: Callable
    adds_up: bool

    def weights(self, rows, shared):
        query, keys, state, mask = rows
        feature_kernel, score_kernel, *filters = shared

        def step(query, state):
            _, _, scores = _score(query, keys, state, feature_kernel, score_kernel, filters)
            weights = self.normalize(scores, state, mask > 0)
            return weights, state + weights if self.adds_up else weights

        return scan_time(step, query, state)[0]

    def gradients(self, rows, shared):
        """Gradients by query, keys and state, and by the arrays that all rows share."""
        query, keys, state, _, weights, upstream = rows
        feature_kernel, score_kernel, *filters = shared
        dtype = state.dtype
        before = ops.concatenate([ops.expand_dims(state, 1), weights[:, :-1]], axis=1)  # (B, T, S)
        before = ops.cumsum(before, axis=1) if self.adds_up else before

        def step(inputs, carry):
            query, before, weights, upstream = inputs
            by_state, by_keys, by_feature_kernel, by_score_kernel, *by_filters = carry
            features, hidden, scores = _score(query, keys, before, feature_kernel, score_kernel, filters)
            by_scores = self.normalize_gradient(scores, weights, ops.cast(upstream, dtype) + by_state)
            by_scores = ops.expand_dims(ops.cast(by_scores, keys.dtype), 2)  # (B, S, 1)
            inner = by_scores * score_kernel * (1 - ops.square(hidden))  # (B, S, U)
            by_kernels = ops.matmul(ops.swapaxes(features, 1, 2), inner)  # (B, F + 1, U)
            by_features = ops.matmul(inner, ops.transpose(feature_kernel))  # (B, S, F)
            if filters:
                by_before, *new_by_filters = convolve_gradients(ops.cast(before, keys.dtype), filters[0], by_features)
            else:
                by_before, new_by_filters = ops.squeeze(by_features, 2), []
            carry = (
                ops.cast(by_before, dtype) + (by_state if self.adds_up else 0),
                by_keys + ops.cast(inner, dtype),
                by_feature_kernel + ops.cast(ops.sum(by_kernels[:, :-1], axis=0), dtype),
                by_score_kernel + ops.cast(ops.sum(hidden * by_scores, axis=(0, 1)), dtype),
                *(total + ops.cast(new, dtype) for total, new in zip(by_filters, new_by_filters, strict=True)),
            )
            return ops.cast(by_kernels[:, -1], dtype), carry

        start = (ops.zeros_like(state), *(ops.zeros_like(x, dtype=dtype) for x in (keys, *shared)))
        inputs = tuple(ops.flip(x, axis=1) for x in (query, before, weights, upstream))
        by_query, (by_state, by_keys, *by_shared) = scan_time(step, inputs, start)
        return (ops.flip(by_query, axis=1), by_keys, by_state), tuple(by_shared)


def _score(query, keys, state, feature_kernel, score_kernel, filters):
    """Compute the features of each source position and a 1, the hidden layer, and the scores `(batch, source)`."""
    signal = ops.cast(state, keys.dtype)
    features = convolve(signal, filters[0]) if filters else ops.expand_dims(signal, 2)
    features = ops.concatenate([features, ops.ones_like(features[:, :, :1])], axis=2)  # (B, S, F + 1)
    # The query is one more feature's kernel: one product instead of a product and a sum.
    kernels = ops.broadcast_to(feature_kernel, (ops.shape(query)[0], *feature_kernel.shape))
    kernels = ops.concatenate([kernels, ops.expand_dims(query, 1)], axis=1)  # (B, F + 1, U)
    hidden = ops.tanh(keys + ops.matmul(features, kernels))  # (B, S, U)
    scores = ops.squeeze(ops.matmul(hidden, ops.expand_dims(score_kernel, 1)), 2)
    return features, hidden, ops.cast(scores, state.dtype)


def _in_chunks(function, rows, totals, num_outputs, dtype):
    """Call `function(rows, totals)` on as many rows of the batch as fit into a chunk, and on at least one."""
    batch, source, units = ops.shape(rows[1])
    elements = batch * source * units

    def chunked():
        if isinstance(source * units, int):
            size = max(1, _CHUNK_SIZE // (source * units))
        else:
            size = ops.maximum(1, _CHUNK_SIZE // ops.maximum(1, source * units))
        return chunked_loop(
            lambda chunk, totals: function(tuple(map(chunk, rows)), totals), batch, size, num_outputs, dtype, totals
        )

    if rows[0].shape[1] == 1:  # one decoding step, whose hidden layer is no larger than the keys
        return function(rows, totals)
    if ops.is_tensor(elements):
        return ops.cond(elements <= _CHUNK_SIZE, lambda: function(rows, totals), chunked)
    is_known = isinstance(elements, int)  # otherwise a symbol: JAX only asks for the shape
    return chunked() if is_known and elements > _CHUNK_SIZE else function(rows, totals)


# Convolution of one channel with long filters, as one matrix product: about ten times as fast on a CPU.


def unroll_filters(filters):
    """Turn filters `(width, filters)` into the matrix that maps a segment of the signal to a run of outputs."""
    width = filters.shape[0]
    offset = np.arange(_OUTPUTS_PER_ROW + width - 1)[:, None] - np.arange(_OUTPUTS_PER_ROW)
    offset = np.where((offset >= 0) & (offset < width), offset, width)  # the row of zeros
    unrolled = ops.take(ops.pad(filters, ((0, 1), (0, 0))), ops.convert_to_tensor(offset, "int32"), axis=0)
    return ops.reshape(unrolled, (_OUTPUTS_PER_ROW + width - 1, _OUTPUTS_PER_ROW * filters.shape[1]))


def convolve(signal, unrolled):
    """Filter the signal `(batch, length)`, padded with zeros, into `(batch, length, filters)`."""
    segments, num_filters = _segments(signal, unrolled.shape[0]), unrolled.shape[1] // _OUTPUTS_PER_ROW
    outputs = ops.reshape(ops.matmul(segments, unrolled), (ops.shape(signal)[0], -1, num_filters))
    return outputs[:, : ops.shape(signal)[1]]


def convolve_gradients(signal, unrolled, upstream):
    """The gradients of `convolve` by the signal and by the unrolled filters."""
    size = unrolled.shape[0]
    batch, length = ops.shape(signal)
    segments = _segments(signal, size)  # (B, rows, size)
    rows = ops.shape(segments)[1]
    upstream = ops.pad(upstream, ((0, 0), (0, rows * _OUTPUTS_PER_ROW - length), (0, 0)))
    upstream = ops.reshape(upstream, (batch, rows, unrolled.shape[1]))
    by_unrolled = ops.tensordot(segments, upstream, axes=[[0, 1], [0, 1]])
    by_segments = ops.matmul(upstream, ops.transpose(unrolled))
    # Each segment overlaps the following ones: sum up the parts that come from the same place.
    overlap = -(-size // _OUTPUTS_PER_ROW)
    by_segments = ops.pad(by_segments, ((0, 0), (0, 0), (0, overlap * _OUTPUTS_PER_ROW - size)))
    parts = ops.split(by_segments, overlap, axis=2)
    padded = sum(ops.pad(part, ((0, 0), (i, overlap - 1 - i), (0, 0))) for i, part in enumerate(parts))
    before = (size - _OUTPUTS_PER_ROW) // 2
    return ops.reshape(padded, (batch, -1))[:, before : before + length], by_unrolled


def _segments(signal, size):
    """The part of the signal that each run of outputs depends on, `(batch, rows, size)`."""
    before = (size - _OUTPUTS_PER_ROW) // 2
    padded = ops.pad(signal, ((0, 0), (before, size - 1 - before)))
    return ops.extract_sequences(padded, size, _OUTPUTS_PER_ROW)
