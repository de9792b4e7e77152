"""Tokens that a hypothesis must begin with."""

from keras import ops

from attention_apps.decoding.options import DecodingOptions
from attention_apps.decoding.state import Tensor


def forced_tokens(prefix: Tensor | None, batch: int | Tensor, options: DecodingOptions) -> Tensor | None:
    """The forced tokens of each item, int32 `(batch, length + 1)`, with 0 after the last; `None` if there are none.

    Args:
        prefix: `(batch, length)`; a row ends with its first 0. In place of `options.forced_prefix`.
    """
    if prefix is None and not options.forced_prefix:
        return None
    if prefix is None:
        shape = (batch, len(options.forced_prefix))
        prefix = ops.broadcast_to(ops.convert_to_tensor([options.forced_prefix], "int32"), shape)
    elif options.forced_prefix:
        raise ValueError("`prefix` must not be given together with `options.forced_prefix`. Received: both")
    prefix = ops.cast(prefix, "int32")
    if prefix.shape[1] is not None and prefix.shape[1] > options.max_length:
        raise ValueError(
            f"`prefix` must be no longer than {options.max_length}, `max_length`. Received: shape {tuple(prefix.shape)}"
        )
    contiguous = ops.cumprod(ops.cast(prefix > 0, "int32"), axis=1)
    return ops.concatenate([prefix * contiguous, ops.zeros((batch, 1), "int32")], axis=1)


def forced_at(forced: Tensor, position: Tensor) -> Tensor:
    """The token forced at a position, `(rows,)`, 0 where any may follow."""
    return ops.take(forced, ops.minimum(position, ops.shape(forced)[1] - 1), axis=1)
