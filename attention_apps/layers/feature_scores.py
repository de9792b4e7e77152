"""Additive scores of one target position, with features of each source position next to its key."""

from keras import ops

from attention_apps.layers.block_loop import block_loop

# Elements of the hidden layer that are computed at a time, few enough to stay in a CPU's cache.
_BLOCK_SIZE = 2**20


def feature_scores(query, keys, features, feature_kernel, score_kernel):
    """v · tanh(q + k + F f) of every source position.

    The hidden layer, the largest tensor by far, is computed block by block, and again for the gradient: a loop over
    target positions keeps none of it.

    Args:
        query: projected query, `(batch, units)`.
        keys: projected keys, `(batch, source, units)`.
        features: `(batch, source, features)`.
        feature_kernel: F, `(features, units)`.
        score_kernel: v, `(units,)`.

    Returns:
        `(batch, source)`.
    """
    # The query is the kernel of one more feature, which is 1 everywhere: one product instead of a product and a sum.
    feature_kernel = ops.cast(feature_kernel, query.dtype)
    kernels = ops.broadcast_to(feature_kernel, (ops.shape(query)[0], *feature_kernel.shape))
    kernels = ops.concatenate([kernels, ops.expand_dims(query, 1)], axis=1)  # (B, F + 1, U)
    features = ops.concatenate([features, ops.ones_like(features[:, :, :1])], axis=2)  # (B, S, F + 1)
    return _scores_in_blocks(keys, features, kernels, ops.cast(score_kernel, query.dtype))


@ops.custom_gradient
def _scores_in_blocks(keys, features, kernels, score_kernel):
    def scores(keys, features, kernels):
        return (ops.squeeze(ops.matmul(_hidden(keys, features, kernels), ops.expand_dims(score_kernel, 1)), 2),)

    def gradients(keys, features, kernels, upstream):
        return _gradients(keys, features, kernels, score_kernel, upstream)

    def gradient(*arguments, upstream=None):
        upstream = arguments[0] if upstream is None else upstream  # (B, S)
        *by_row, score_gradients = _in_blocks(gradients, 4, keys, features, kernels, upstream)
        return *by_row, ops.sum(score_gradients, axis=0)

    return _in_blocks(scores, 1, keys, features, kernels)[0], gradient


def _hidden(keys, features, kernels):
    return ops.tanh(keys + ops.matmul(features, kernels))  # (B, S, U)


def _gradients(keys, features, kernels, score_kernel, upstream):
    """By keys, features, kernels and score kernel, the last one apart for each row of the batch."""
    hidden = _hidden(keys, features, kernels)
    score_gradients = ops.squeeze(ops.matmul(ops.expand_dims(upstream, 1), hidden), 1)  # (B, U)
    inner = ops.expand_dims(upstream, 2) * score_kernel * (1 - ops.square(hidden))  # (B, S, U)
    feature_gradient = ops.matmul(inner, ops.swapaxes(kernels, 1, 2))
    kernel_gradients = ops.matmul(ops.swapaxes(features, 1, 2), inner)
    return inner, feature_gradient, kernel_gradients, score_gradients


def _in_blocks(function, num_outputs, keys, *arrays):
    """`function` of as many rows of the batch at a time as fit into a block, and of one where not even that fits."""
    batch, source, units = ops.shape(keys)
    elements = batch * source * units

    def whole():
        return function(keys, *arrays)

    def in_blocks():
        def step(block, state):
            return function(block(keys), *map(block, arrays)), state

        return block_loop(step, batch, _fitting_rows(source * units), num_outputs, keys.dtype)[0]

    if ops.is_tensor(elements):
        return ops.cond(elements <= _BLOCK_SIZE, whole, in_blocks)
    known = isinstance(elements, int)  # or a symbol, where JAX only asks for the shape
    return in_blocks() if known and elements > _BLOCK_SIZE else whole()


def _fitting_rows(elements):
    if isinstance(elements, int):
        return max(1, _BLOCK_SIZE // elements)
    return ops.maximum(1, _BLOCK_SIZE // ops.maximum(1, elements))
