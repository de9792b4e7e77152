"""A way to call an exported model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

DEFAULT_SIGNATURE = "serving_default"


@dataclass(frozen=True)
class Signature:
    """A function from raw input to text, in graph code of core TensorFlow ops, and what there is to know of it.

    Args:
        function: from tensors by name to tensors by name, the batch axis first everywhere. It never raises on data.
        inputs: shape and type of each input.
        example: a valid call, with which a server warms up.
        input_notes, output_notes: what each input and output is.
        resources: lookup tables that the function uses.
        packages: what must be imported before the model is loaded, for ops that are not of TensorFlow's core.
    """

    function: Callable[..., dict[str, tf.Tensor]]
    inputs: Mapping[str, tf.TensorSpec]
    example: Mapping[str, Sequence[Any]]
    input_notes: Mapping[str, str]
    output_notes: Mapping[str, str]
    resources: Sequence[Any] = ()
    packages: Sequence[str] = ()

    def trace(self) -> Any:
        """The function's graph."""
        specs = {name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in self.inputs.items()}
        return tf.function(self._answer, autograph=False).get_concrete_function(**specs)

    def _answer(self, **inputs):
        return {name: _without_infinities(tensor) for name, tensor in self.function(**inputs).items()}


def _without_infinities(tensor):
    """JSON has no word for infinity, which is the score of what is not there; the lowest number stands for it."""
    if not tensor.dtype.is_floating:
        return tensor
    return tf.where(tf.math.is_finite(tensor), tensor, tensor.dtype.min)
