"""Gradients of any function of tensors, on every backend."""

import keras
from keras import ops


def gradients_of(function, *inputs):
    """Gradients of a scalar function by each of its inputs, as NumPy arrays."""
    inputs = [ops.convert_to_tensor(x) for x in inputs]
    return [ops.convert_to_numpy(x) for x in _GRADIENTS[keras.backend.backend()](function, inputs)]


def _tensorflow_gradients(function, inputs):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(inputs)
        result = function(*inputs)
    return tape.gradient(result, inputs)


def _jax_gradients(function, inputs):
    import jax

    return jax.grad(function, argnums=tuple(range(len(inputs))))(*inputs)


def _torch_gradients(function, inputs):
    import torch

    inputs = [x.detach().requires_grad_() for x in inputs]
    return torch.autograd.grad(function(*inputs), inputs)


_GRADIENTS = {"tensorflow": _tensorflow_gradients, "jax": _jax_gradients, "torch": _torch_gradients}
