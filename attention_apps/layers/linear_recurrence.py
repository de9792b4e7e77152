"""First-order linear recurrences along the last axis, in a logarithmic number of parallel steps."""

from keras import ops


@ops.custom_gradient
def linear_recurrence(decay, inputs):
    """x[j] = decay[j] · x[j - 1] + inputs[j], where nothing comes before x[0].

    Only sums of products, never a quotient of cumulative products: with decays between 0 and 1 nothing overflows,
    however long the axis. The gradient is such a recurrence too, run backwards.

    Args:
        decay: `(batch, length)`.
        inputs: `(batch, length)`.
    """
    outputs = _scan(decay, inputs)

    def gradient(*arguments, upstream=None):
        upstream = arguments[0] if upstream is None else upstream
        following = ops.pad(decay[:, 1:], ((0, 0), (0, 1)))
        input_gradient = ops.flip(_scan(ops.flip(following, axis=1), ops.flip(upstream, axis=1)), axis=1)
        return input_gradient * ops.pad(outputs[:, :-1], ((0, 0), (1, 0))), input_gradient

    return outputs, gradient


def _scan(decay, inputs):
    """Each turn joins stretches twice as long: `decay` across a stretch and `outputs` of what entered in it."""
    length = ops.shape(inputs)[1]
    positions = ops.arange(length, dtype="int32")

    def join(span, decay, outputs):
        inside = positions >= span
        before = ops.maximum(positions - span, 0)
        joined = outputs + ops.where(inside, decay * ops.take(outputs, before, axis=1), 0)
        return span * 2, ops.where(inside, decay * ops.take(decay, before, axis=1), 0), joined

    first = (ops.ones((), dtype="int32"), decay, inputs)
    return ops.while_loop(lambda span, *_: span < length, join, first)[2]
