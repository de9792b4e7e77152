"""Token ids, as every decoder reads and writes them."""

from keras import ops

PADDING, START, END, UNKNOWN = 0, 1, 2, 3


def embeddable(tokens, vocabulary_size):
    """Ids beyond the vocabulary stand for copied words, which are embedded as the unknown word."""
    return ops.where(tokens >= vocabulary_size, UNKNOWN, tokens)


def flat_targets(tokens):
    """`(batch, targets, time)` as `(batch * targets, time)`, and the number of targets, `None` without such an axis."""
    if len(tokens.shape) == 2:
        return tokens, None
    targets = ops.shape(tokens)[1]
    return ops.reshape(tokens, (-1, ops.shape(tokens)[2])), targets


def unflat_targets(tensor, targets):
    """Undoes `flat_targets` for something computed from it."""
    if targets is None or tensor is None:
        return tensor
    return ops.reshape(tensor, (-1, targets, *ops.shape(tensor)[1:]))
