"""Additive attention, computed without a tensor of all pairs of positions and units."""

import inspect
import math
from functools import partial

import keras
from keras import ops

from attention_apps.layers.constructor_config import ConstructorConfig
from attention_apps.layers.sequence_ops import chunked_loop, masked_softmax, over_targets


@keras.saving.register_keras_serializable(package="attention_apps")
class AdditiveAttention(ConstructorConfig, keras.layers.Layer):
    """Scores each source position with a network of one hidden layer: v · tanh(W q + U k).

    The hidden layer is computed in chunks, so memory does not grow with target × source × units.

    Args:
        units: Size of the hidden layer.

    Call arguments:
        query: `(batch, target, query_dim)`.
        value: `(batch, source, dim)`.
        value_mask: Boolean `(batch, source)`; `True` means real.
        prepared: Result of `prepare(value)`, the projected keys `(batch, source, units)`.
        state: Not used; returned as it is.
        single_step: Whether the target positions belong to one decoding step, so that there are only a few of them.
            Avoids chunks; the result is the same.

    Returns:
        The context `(batch, target, dim)`, the weights `(batch, target, source)` and the state.

    Example:

    >>> attention = AdditiveAttention(256)
    >>> context, weights, _ = attention(query, value, value_mask=mask)

    Reference:
        Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate", A.1.2.
    """

    _key_bias = False  # whether the projection of the keys has a bias, which most subclasses need

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        if units < 1:
            raise ValueError(f"`units` must be a positive integer. Received: units={units}")
        self.units = units
        self.supports_masking = True
        self.query_dense = keras.layers.Dense(units, use_bias=False, dtype=self.dtype_policy, name="query")
        self.key_dense = keras.layers.Dense(units, use_bias=self._key_bias, dtype=self.dtype_policy, name="key")

    def build(self, query_shape, value_shape):
        self.query_dense.build(query_shape)
        self.key_dense.build(value_shape)
        self.score_kernel = self.add_weight(shape=(self.units,), name="score_kernel")

    def prepare(self, value):
        return self.key_dense(value)

    def init_state(self, value):
        return {}

    def call(self, query, value, value_mask=None, prepared=None, state=None, single_step=False):
        keys = self.prepare(value) if prepared is None else prepared  # (B, S, U)
        scores = additive_scores(self.query_dense(query), keys, self.score_kernel, single_step)  # (B, T, S)
        weights = masked_softmax(scores, over_targets(value_mask))
        return ops.matmul(weights, value), weights, {} if state is None else state


# Elements of the hidden layer per chunk: few enough for a CPU's cache. The speed gained by staying in the cache more
# than pays for computing the hidden layer a second time in the backward pass.
_CHUNK_SIZE = 2**20
# With at most this many elements per row, as in one decoding step over an image, the hidden layer is hardly larger
# than the keys. Keeping it for the gradient is then cheap, and faster than recomputing it.
_SHORT_ROW = 2**16


def additive_scores(query, keys, kernel, single_step=False):
    """Compute v · tanh(q + k) in chunks, and recompute the hidden layer in the backward pass.

    The hidden layer `(batch, target, source, units)` is never in memory as a whole and is not kept for the gradient,
    unless target × source × units is known to be small.

    Args:
        query: Projected queries, `(batch, target, units)`.
        keys: Projected keys, `(batch, source, units)`.
        kernel: v, `(units,)`.
        single_step: Whether this is one step of a decoder, with few target positions (the hypotheses of an item).
            The scores are then computed in one piece, which keeps branches and loops out of the graph.

    Returns:
        Scores `(batch, target, source)`.
    """
    kernel = ops.cast(kernel, query.dtype)
    row = (*query.shape[1:], keys.shape[1])
    if all(isinstance(size, int) for size in row) and math.prod(row) <= _SHORT_ROW:
        return _scores(query, keys, kernel)[0]
    in_one_piece = single_step or query.shape[1] == 1

    @ops.custom_gradient
    def compute(*arrays):
        # In eager mode, TensorFlow's tape would otherwise keep every intermediate result of the forward pass.
        arrays = tuple(map(ops.stop_gradient, arrays))

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream  # (B, T, S)
            inputs = (*arrays, upstream)
            by_query, by_keys, by_kernel = _in_chunks(_gradients, _gradients_of_one_row, inputs, num_outputs=3)
            return by_query, by_keys, ops.sum(by_kernel, axis=0)

        if in_one_piece:
            return _scores(*arrays)[0], gradient
        return _in_chunks(_scores, _scores_of_one_row, arrays, num_outputs=1)[0], gradient

    return compute(query, keys, kernel)


def takes_single_step(attention):
    """Return whether the call of an attention layer has a `single_step` argument."""
    return "single_step" in inspect.signature(attention.call).parameters


def _in_chunks(of_rows, of_one_row, arrays, num_outputs):
    """Call `of_rows` on as many rows of the batch as fit into a chunk, or `of_one_row` if not even one fits.

    `of_one_row` is also told how many source positions fit.
    """
    query, keys, kernel, *upstream = arrays
    (batch, target, units), source = ops.shape(query), ops.shape(keys)[1]
    if not all(isinstance(size, int) or ops.is_tensor(size) for size in (batch, target, source)):
        return of_rows(*arrays)  # JAX only asks for the shape
    fitting_positions = _CHUNK_SIZE // units // _at_least_one(target)
    fitting_rows = _CHUNK_SIZE // units // _at_least_one(source) // _at_least_one(target)
    of_one_row = partial(of_one_row, size=_at_least_one(fitting_positions))

    def loop(function, size):
        return chunked_loop(
            lambda chunk, state: (function(chunk(query), chunk(keys), kernel, *map(chunk, upstream)), state),
            batch,
            size,
            num_outputs,
            dtype=query.dtype,
        )[0]

    return _if(
        batch <= fitting_rows,
        lambda: of_rows(*arrays),
        lambda: _if(fitting_rows >= 1, lambda: loop(of_rows, fitting_rows), lambda: loop(of_one_row, 1)),
    )


def _scores(query, keys, kernel):
    hidden = _hidden(query, keys)
    return (ops.squeeze(ops.tensordot(hidden, ops.expand_dims(kernel, 1), 1), 3),)  # (B, T, S)


def _scores_of_one_row(query, keys, kernel, size):
    def step(chunk, state):
        (scores,) = _scores(query, chunk(keys, axis=1), kernel)
        return (ops.transpose(scores, (2, 0, 1)),), state

    (scores,), _ = chunked_loop(step, ops.shape(keys)[1], size, num_outputs=1, dtype=query.dtype)
    return (ops.transpose(scores, (1, 2, 0)),)


def _gradients(query, keys, kernel, upstream):
    """Gradients by query, keys and kernel; that of the kernel separately for each row, `(batch, units)`."""
    batch, units = ops.shape(query)[0], ops.shape(kernel)[0]
    hidden = _hidden(query, keys)
    by_kernel = ops.matmul(ops.reshape(upstream, (batch, 1, -1)), ops.reshape(hidden, (batch, -1, units)))
    slope = 1 - ops.square(hidden)  # (B, T, S, U)
    by_query = ops.squeeze(ops.matmul(ops.expand_dims(upstream, 2), slope), 2)  # (B, T, U)
    by_keys = ops.sum(ops.expand_dims(upstream, 3) * slope, axis=1)  # (B, S, U)
    return by_query * kernel, by_keys * kernel, ops.squeeze(by_kernel, 1)


def _gradients_of_one_row(query, keys, kernel, upstream, size):
    def step(chunk, state):
        by_query, by_keys, by_kernel = _gradients(query, chunk(keys, axis=1), kernel, chunk(upstream, axis=2))
        return (ops.swapaxes(by_keys, 0, 1),), (state[0] + by_query, state[1] + by_kernel)

    (by_keys,), (by_query, by_kernel) = chunked_loop(
        step,
        ops.shape(keys)[1],
        size,
        num_outputs=1,
        dtype=query.dtype,
        state=(ops.zeros_like(query), ops.zeros_like(query[:, 0])),
    )
    return by_query, ops.swapaxes(by_keys, 0, 1), by_kernel


def _hidden(query, keys):
    return ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(keys, 1))  # (B, T, S, U)


def _at_least_one(size):
    return max(1, size) if isinstance(size, int) else ops.maximum(1, size)


def _if(condition, then, otherwise):
    if isinstance(condition, bool):
        return then() if condition else otherwise()
    return ops.cond(condition, then, otherwise)
