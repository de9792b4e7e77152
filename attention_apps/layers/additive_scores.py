"""v · tanh(q + k) for every pair of target and source position, without a tensor of all pairs and units."""

import contextlib
import contextvars
import math

from keras import ops

from attention_apps.layers.block_loop import block_loop

# Elements of the hidden layer that are computed at a time. Small enough to stay in a CPU's cache, which more than
# pays for computing them a second time for the gradient.
_BLOCK_SIZE = 2**20
# Where a row of the batch has no more elements than this, as at one step of a decoder over an image, its hidden layer
# is hardly larger than its keys: keeping it for the gradient is cheap, and quicker than computing it again.
_SHORT_ROW = 2**16
_has_few_targets = contextvars.ContextVar("has_few_targets", default=False)


@contextlib.contextmanager
def few_targets():
    """Within it scores are computed at once, without the branches and loops of the general case in the graph.

    For a step of a decoder, whose target positions are no more than an item's hypotheses or captions.
    """
    token = _has_few_targets.set(True)
    try:
        yield
    finally:
        _has_few_targets.reset(token)


def additive_scores(query, keys, kernel):
    """v · tanh(q + k), computed block by block, and once more in the backward pass.

    The hidden layer `(batch, target, source, units)` is never there as a whole, nor is it kept for the gradient,
    unless target × source × units is known to be small.

    Args:
        query: projected queries, `(batch, target, units)`.
        keys: projected keys, `(batch, source, units)`.
        kernel: v, `(units,)`.

    Returns:
        Scores `(batch, target, source)`.
    """
    kernel = ops.cast(kernel, query.dtype)
    row = (*query.shape[1:], keys.shape[1])
    if all(isinstance(size, int) for size in row) and math.prod(row) <= _SHORT_ROW:
        return _scores(query, keys, kernel)[0]
    return _additive_scores(query, keys, kernel)


@ops.custom_gradient
def _additive_scores(*arrays):
    # In eager mode TensorFlow's tape would keep what is computed in here, although it never needs it.
    query, keys, kernel = map(ops.stop_gradient, arrays)

    def gradient(*arguments, upstream=None):
        upstream = arguments[0] if upstream is None else upstream  # (B, T, S)
        gradients = _in_blocks(_gradients, _gradients_of_a_row, query, keys, kernel, upstream)
        return gradients[0], gradients[1], ops.sum(gradients[2], axis=0)

    return _in_blocks(_scores, _scores_of_a_row, query, keys, kernel)[0], gradient


def _in_blocks(of_rows, of_a_row, query, keys, kernel, *upstream):
    """`of_rows` of as many rows of the batch at a time as fit into a block; `of_a_row` where not even one does."""
    (batch, target, units), source = ops.shape(query), ops.shape(keys)[1]
    sizes_are_known = all(isinstance(size, int) or ops.is_tensor(size) for size in (batch, target, source))
    if _has_few_targets.get() or not sizes_are_known:  # in JAX, where it only asks for the shape
        return of_rows(query, keys, kernel, *upstream)
    fitting = _BLOCK_SIZE // units // _at_least_one(source) // _at_least_one(target)

    def loop(function, size):
        def step(block, state):
            return function(block(query), block(keys), kernel, *map(block, upstream)), state

        return block_loop(step, batch, size, num_outputs=3 if upstream else 1, dtype=query.dtype)[0]

    return _if(
        batch <= fitting,
        lambda: of_rows(query, keys, kernel, *upstream),
        lambda: _if(fitting >= 1, lambda: loop(of_rows, fitting), lambda: loop(of_a_row, 1)),
    )


def _scores(query, keys, kernel):
    hidden = _hidden(query, keys)
    return (ops.squeeze(ops.tensordot(hidden, ops.expand_dims(kernel, 1), 1), 3),)  # (B, T, S)


def _scores_of_a_row(query, keys, kernel):
    def step(block, state):
        (scores,) = _scores(query, block(keys, axis=1), kernel)
        return (ops.transpose(scores, (2, 0, 1)),), state

    (scores,), _ = block_loop(step, ops.shape(keys)[1], _source_block(query), num_outputs=1, dtype=query.dtype)
    return (ops.transpose(scores, (1, 2, 0)),)


def _gradients(query, keys, kernel, upstream):
    """By query, keys and kernel, the last one apart for each row of the batch."""
    batch, units = ops.shape(query)[0], ops.shape(kernel)[0]
    hidden = _hidden(query, keys)
    kernel_gradient = ops.matmul(ops.reshape(upstream, (batch, 1, -1)), ops.reshape(hidden, (batch, -1, units)))
    slope = 1 - ops.square(hidden)  # (B, T, S, U)
    query_gradient = ops.squeeze(ops.matmul(ops.expand_dims(upstream, 2), slope), 2)
    keys_gradient = ops.sum(ops.expand_dims(upstream, 3) * slope, axis=1)
    return query_gradient * kernel, keys_gradient * kernel, ops.squeeze(kernel_gradient, 1)


def _gradients_of_a_row(query, keys, kernel, upstream):
    def step(block, state):
        one = _gradients(query, block(keys, axis=1), kernel, block(upstream, axis=2))
        return (ops.swapaxes(one[1], 0, 1),), (state[0] + one[0], state[1] + one[2])

    (keys_gradient,), (query_gradient, kernel_gradient) = block_loop(
        step,
        ops.shape(keys)[1],
        _source_block(query),
        num_outputs=1,
        dtype=query.dtype,
        state=(ops.zeros_like(query), ops.zeros_like(query[:, 0])),
    )
    return query_gradient, ops.swapaxes(keys_gradient, 0, 1), kernel_gradient


def _hidden(query, keys):
    return ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(keys, 1))  # (B, T, S, U)


def _source_block(query):
    _, target, units = ops.shape(query)
    return _at_least_one(_BLOCK_SIZE // units // _at_least_one(target))


def _at_least_one(size):
    return max(1, size) if isinstance(size, int) else ops.maximum(1, size)


def _if(condition, then, otherwise):
    if isinstance(condition, bool):
        return then() if condition else otherwise()
    return ops.cond(condition, then, otherwise)
