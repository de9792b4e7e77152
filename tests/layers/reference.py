"""Formulas of the papers in NumPy, for one row of the batch at a time where that is clearer."""

import numpy as np


def softmax(scores, mask=None):
    """Over the last axis; a row without any real position is all zero."""
    mask = np.ones(scores.shape, bool) if mask is None else np.broadcast_to(mask, scores.shape)
    exponentials = np.where(mask, np.exp(scores), 0)
    total = exponentials.sum(-1, keepdims=True)
    return exponentials / np.where(total == 0, 1, total)


def multi_head_attention(layer, query, value, mask=None):
    """Context and averaged weights, head by head, with the projections of a `MultiHeadAttention` layer."""
    group = layer.num_heads // (layer.num_key_value_heads or layer.num_heads)
    heads = [np.array(split) for split in _projections(layer, query, value)]
    contexts, weights = [], []
    for head in range(layer.num_heads):
        queries, keys, values = heads[0][head], heads[1][head // group], heads[2][head // group]
        weights.append(softmax(queries @ keys.swapaxes(1, 2) / np.sqrt(layer.key_dim), mask))
        contexts.append(weights[-1] @ values)
    return dense(layer.output_dense, np.concatenate(contexts, -1)), np.mean(weights, 0)


def _projections(layer, query, value):
    for child, inputs in ((layer.query_dense, query), (layer.key_dense, value), (layer.value_dense, value)):
        projected = dense(child, inputs)
        yield np.split(projected, projected.shape[-1] // layer.key_dim, -1)


def dense(layer, inputs):
    kernel, *bias = layer.get_weights()
    return inputs @ kernel + (bias[0] if bias else 0)


def layer_normalization(layer, inputs):
    scale, offset = layer.get_weights()
    deviation = np.sqrt(inputs.var(-1, keepdims=True) + layer.epsilon)
    return (inputs - inputs.mean(-1, keepdims=True)) / deviation * scale + offset
