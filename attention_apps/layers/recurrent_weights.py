"""Weights of additive attention that depend on those of the target positions before."""

from keras import ops

from attention_apps.layers.block_convolution import convolve, convolve_gradients
from attention_apps.layers.block_loop import block_loop
from attention_apps.layers.time_loop import time_loop

# Elements of the hidden layer that are computed at a time, few enough to stay in a CPU's cache.
_BLOCK_SIZE = 2**20


def recurrent_weights(
    query, keys, state, mask, filters, feature_kernel, score_kernel, normalize, normalize_gradient, adds_up=False
):
    """Weights normalised from the scores v · tanh(q + k + F f), one target position after the other.

    The features f of a source position are the convolved state: the weights of the target position before, or, where
    it `adds_up`, the sum of all before. Nothing but the weights is kept for the gradient. The loop over target
    positions goes through the rows of the batch in blocks, so that the hidden layer, computed again for the
    gradient, and the gradient of the keys stay in a CPU's cache.

    Args:
        query: projected queries, `(batch, target, units)`.
        keys: projected keys, `(batch, source, units)`.
        state: `(batch, source)`.
        mask: boolean `(batch, source)`, or `None`.
        filters: what `unroll_filters` returned, or `None` where the state itself is the one feature.
        feature_kernel: F, `(features, units)`.
        score_kernel: v, `(units,)`.
        normalize: makes weights of `(scores, state, mask)`, all `(batch, source)`.
        normalize_gradient: the gradient by the scores, of `(scores, weights, upstream)`.
        adds_up: whether the state is the sum of all weights before.

    Returns:
        `(batch, target, source)`, in the state's dtype.
    """
    recurrence = _Recurrence(normalize, normalize_gradient, adds_up)
    mask = ops.ones_like(state) if mask is None else ops.cast(mask, state.dtype)
    shared = [ops.cast(feature_kernel, keys.dtype), ops.cast(score_kernel, keys.dtype)]
    shared += [] if filters is None else [filters]
    return _with_gradient(recurrence)(query, keys, state, mask, *shared)


def _with_gradient(recurrence):
    @ops.custom_gradient
    def weights_of(*arrays):
        # In eager mode TensorFlow's tape would keep what is computed in here, although it never needs it.
        query, keys, state, mask, *shared = map(ops.stop_gradient, arrays)
        rows = (query, keys, state, mask)
        (weights,), _ = _in_blocks(lambda rows, _: ((recurrence.weights(rows, shared),), ()), rows, (), 1, state.dtype)

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream  # (B, T, S)

            def add(rows, totals):
                by_rows, by_shared = recurrence.gradients(rows, shared)
                return by_rows, tuple(total + new for total, new in zip(totals, by_shared, strict=True))

            totals = tuple(ops.zeros_like(array, dtype=state.dtype) for array in shared)
            by_rows, totals = _in_blocks(add, (*rows, weights, upstream), totals, 3, state.dtype)
            found = (*by_rows, ops.zeros_like(mask), *totals)
            return tuple(ops.cast(one, array.dtype) for one, array in zip(found, arrays, strict=True))

        return weights, gradient

    return weights_of


class _Recurrence:
    """The loop over target positions, and the one back."""

    def __init__(self, normalize, normalize_gradient, adds_up):
        self.normalize = normalize
        self.normalize_gradient = normalize_gradient
        self.adds_up = adds_up

    def weights(self, rows, shared):
        query, keys, state, mask = rows
        feature_kernel, score_kernel, *filters = shared

        def step(query, state):
            hidden = _hidden(keys, self._features(state, filters, keys.dtype), _kernels(feature_kernel, query))
            weights = self.normalize(_scores(hidden, score_kernel, state.dtype), state, mask > 0)
            return weights, state + weights if self.adds_up else weights

        return time_loop(step, query, state)[0]

    def gradients(self, rows, shared):
        """By query, keys and state; by what the rows share."""
        query, keys, state, _, weights, upstream = rows
        feature_kernel, score_kernel, *filters = shared
        dtype = state.dtype
        before = ops.concatenate([ops.expand_dims(state, 1), weights[:, :-1]], axis=1)  # (B, T, S)
        before = ops.cumsum(before, axis=1) if self.adds_up else before

        def step(inputs, carry):
            query, before, weights, upstream = inputs
            state_gradient, keys_gradient, feature_gradient, score_gradient, *filters_gradient = carry
            features, kernels = self._features(before, filters, keys.dtype), _kernels(feature_kernel, query)
            hidden = _hidden(keys, features, kernels)
            by_scores = self.normalize_gradient(
                _scores(hidden, score_kernel, dtype), weights, ops.cast(upstream, dtype) + state_gradient
            )
            by_scores = ops.expand_dims(ops.cast(by_scores, keys.dtype), 2)  # (B, S, 1)
            inner = by_scores * score_kernel * (1 - ops.square(hidden))  # (B, S, U)
            by_kernels = ops.matmul(ops.swapaxes(features, 1, 2), inner)  # (B, F + 1, U)
            by_features = ops.matmul(inner, ops.transpose(feature_kernel))  # (B, S, F)
            by_before, *by_filters = self._features_gradients(before, filters, by_features)
            by_before = ops.cast(by_before, dtype) + (state_gradient if self.adds_up else 0)
            carry = (
                by_before,
                keys_gradient + ops.cast(inner, dtype),
                feature_gradient + ops.cast(ops.sum(by_kernels[:, :-1], axis=0), dtype),
                score_gradient + ops.cast(ops.sum(hidden * by_scores, axis=(0, 1)), dtype),
                *(total + ops.cast(new, dtype) for total, new in zip(filters_gradient, by_filters, strict=True)),
            )
            return ops.cast(by_kernels[:, -1], dtype), carry

        start = (ops.zeros_like(state), *(ops.zeros_like(x, dtype=dtype) for x in (keys, *shared)))
        inputs = tuple(ops.flip(x, axis=1) for x in (query, before, weights, upstream))
        by_query, (by_state, by_keys, *by_shared) = time_loop(step, inputs, start)
        return (ops.flip(by_query, axis=1), by_keys, by_state), tuple(by_shared)

    def _features(self, state, filters, dtype):
        """The features of each source position and a 1, `(batch, source, features + 1)`."""
        state = ops.cast(state, dtype)
        features = convolve(state, filters[0]) if filters else ops.expand_dims(state, 2)
        return ops.concatenate([features, ops.ones_like(features[:, :, :1])], axis=2)

    def _features_gradients(self, state, filters, upstream):
        if filters:
            return convolve_gradients(ops.cast(state, upstream.dtype), filters[0], upstream)
        return (ops.squeeze(upstream, 2),)


def _kernels(feature_kernel, query):
    """The query as the kernel of one more feature: one product instead of a product and a sum."""
    kernels = ops.broadcast_to(feature_kernel, (ops.shape(query)[0], *feature_kernel.shape))
    return ops.concatenate([kernels, ops.expand_dims(query, 1)], axis=1)  # (B, F + 1, U)


def _hidden(keys, features, kernels):
    return ops.tanh(keys + ops.matmul(features, kernels))  # (B, S, U)


def _scores(hidden, score_kernel, dtype):
    return ops.cast(ops.squeeze(ops.matmul(hidden, ops.expand_dims(score_kernel, 1)), 2), dtype)


def _in_blocks(function, rows, totals, num_outputs, dtype):
    """`function(rows, totals)` for as many rows of the batch at a time as fit into a block, and for at least one."""
    batch, source, units = ops.shape(rows[1])
    elements = batch * source * units

    def whole():
        return function(rows, totals)

    def in_blocks():
        def step(block, totals):
            return function(tuple(block(array) for array in rows), totals)

        return block_loop(step, batch, _fitting_rows(source * units), num_outputs, dtype, totals)

    if rows[0].shape[1] == 1:  # a step of a decoder, whose hidden layer is no larger than the keys
        return whole()
    if ops.is_tensor(elements):
        return ops.cond(elements <= _BLOCK_SIZE, whole, in_blocks)
    known = isinstance(elements, int)  # or a symbol, where JAX only asks for the shape
    return in_blocks() if known and elements > _BLOCK_SIZE else whole()


def _fitting_rows(elements):
    if isinstance(elements, int):
        return max(1, _BLOCK_SIZE // elements)
    return ops.maximum(1, _BLOCK_SIZE // ops.maximum(1, elements))
