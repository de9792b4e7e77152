"""Masks are boolean; `True` means real. Padding gets exactly zero weight, even if a whole row is padding."""

import keras
from keras import ops

from attention_apps.constants import VERY_NEGATIVE


def masked_softmax(scores, mask=None):
    """Softmax over the last axis that gives masked positions a weight of exactly zero.

    A row without any real position gets zero weights and zero gradients. A plain softmax would spread its weight over
    the padding. Half-precision scores are normalized in float32.

    Args:
        scores: `(..., source)`.
        mask: Boolean, broadcastable to `scores`, or `None`.
    """
    dtype = keras.backend.standardize_dtype(scores.dtype)
    scores = ops.cast(scores, "float32") if dtype in ("float16", "bfloat16") else scores
    if mask is None:
        return ops.cast(ops.softmax(scores, axis=-1), dtype)
    mask = ops.cast(mask, "bool")
    weights = ops.softmax(ops.where(mask, scores, ops.cast(VERY_NEGATIVE, scores.dtype)), axis=-1)
    return ops.cast(ops.where(mask, weights, ops.zeros_like(weights)), dtype)


def softmax_gradient(weights, upstream):
    """The gradient of `masked_softmax` by the scores, from its weights and the gradient by the weights."""
    return weights * (upstream - ops.sum(weights * upstream, axis=-1, keepdims=True))


def over_targets(value_mask):
    """A source mask `(batch, source)` that broadcasts over target positions; `None` stays `None`."""
    return None if value_mask is None else ops.expand_dims(value_mask, 1)  # (B, 1, S)


def causal_mask(target_length, source_length=None):
    """`(target, source)`: a target position sees the source positions up to itself; the last one sees all."""
    source_length = target_length if source_length is None else source_length
    offset = source_length - target_length
    return ops.expand_dims(ops.arange(target_length) + offset, 1) >= ops.expand_dims(ops.arange(source_length), 0)


def length_mask(lengths, max_length):
    """`(batch, max_length)`: `True` before each row's length."""
    return ops.expand_dims(ops.arange(max_length), 0) < ops.expand_dims(ops.cast(lengths, "int32"), 1)
