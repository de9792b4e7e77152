"""The same attention in this library, in Keras' own layers and in PyTorch, from the same weights.

Each contender is a function without arguments that runs forward and backward and returns the context and the
gradients by query, value and every weight, in this order.
"""

import math
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from attention_apps.layers import AdditiveAttention, MultiHeadAttention, ScaledDotProductAttention

Arrays = dict[str, np.ndarray]
Contenders = dict[str, Callable[[], list]]


def additive(arrays: Arrays) -> Contenders:
    """v · tanh(W q + U k); Keras' layer has no W and U of its own and gets them as dense layers in front."""
    query, value, units = arrays["query"], arrays["value"], len(arrays["score"])
    ours = AdditiveAttention(units)
    ours.build(query.shape, value.shape)
    assign([ours.query_dense.kernel, ours.key_dense.kernel, ours.score_kernel], arrays)
    dense = [keras.layers.Dense(units, use_bias=False) for _ in range(2)]
    theirs = keras.layers.AdditiveAttention()
    dense[0].build(query.shape), dense[1].build(value.shape)
    theirs.build([(*query.shape[:2], units), (*value.shape[:2], units)])
    assign([dense[0].kernel, dense[1].kernel, theirs.scale], arrays)

    def torch_forward(query, value, query_kernel, key_kernel, score):
        hidden = ((query @ query_kernel).unsqueeze(2) + (value @ key_kernel).unsqueeze(1)).tanh()
        return (hidden @ score).softmax(-1) @ value

    return {
        "attention_apps": with_tensorflow(
            lambda q, v: ours(q, v)[0], [ours.query_dense.kernel, ours.key_dense.kernel, ours.score_kernel], arrays
        ),
        "Keras": with_tensorflow(
            lambda q, v: theirs([dense[0](q), v, dense[1](v)]), [*(d.kernel for d in dense), theirs.scale], arrays
        ),
        "PyTorch": with_torch(torch_forward, arrays),
    }


def scaled_dot_product(arrays: Arrays) -> Contenders:
    ours, theirs = ScaledDotProductAttention(), keras.layers.Attention()
    scale = 1 / math.sqrt(arrays["query"].shape[-1])

    def torch_forward(query, value):
        import torch

        return torch.nn.functional.scaled_dot_product_attention(query, value, value)

    return {
        "attention_apps": with_tensorflow(lambda q, v: ours(q, v)[0], [], arrays),
        "Keras": with_tensorflow(lambda q, v: theirs([q * scale, v]), [], arrays),
        "PyTorch": with_torch(torch_forward, arrays),
    }


def multi_head(arrays: Arrays, num_heads: int = 8) -> Contenders:
    """With weights and without; Keras' layer without and PyTorch's fused function compute none either."""
    query, value = arrays["query"], arrays["value"]
    key_dim = arrays["query_kernel"].shape[1] // num_heads
    contenders = {}
    for name, return_weights in (("attention_apps", False), ("attention_apps, weights too", True)):
        ours = MultiHeadAttention(num_heads, key_dim, use_bias=False, return_weights=return_weights)
        ours.build(query.shape, value.shape)
        kernels = [d.kernel for d in (ours.query_dense, ours.key_dense, ours.value_dense, ours.output_dense)]
        assign(kernels, arrays)
        contenders[name] = with_tensorflow(lambda q, v, ours=ours: ours(q, v)[0], kernels, arrays)
    theirs = keras.layers.MultiHeadAttention(num_heads, key_dim, use_bias=False)
    theirs.build(query.shape, value.shape)
    kernels = [d.kernel for d in (theirs.query_dense, theirs.key_dense, theirs.value_dense, theirs.output_dense)]
    assign(kernels, arrays)
    contenders["Keras"] = with_tensorflow(lambda q, v: theirs(q, v), kernels, arrays)

    def torch_forward(query, value, query_kernel, key_kernel, value_kernel, output_kernel):
        import torch

        heads = [
            (x @ kernel).unflatten(-1, (num_heads, key_dim)).transpose(1, 2)
            for x, kernel in ((query, query_kernel), (value, key_kernel), (value, value_kernel))
        ]
        context = torch.nn.functional.scaled_dot_product_attention(*heads)
        return context.transpose(1, 2).flatten(2) @ output_kernel

    return {**contenders, "PyTorch": with_torch(torch_forward, arrays)}


def assign(variables: list[keras.Variable], arrays: Arrays) -> None:
    weights = [array for name, array in arrays.items() if name not in ("query", "value", "upstream")]
    for variable, array in zip(variables, weights, strict=True):
        variable.assign(array.reshape(variable.shape))


def with_tensorflow(forward: Callable, variables: list[keras.Variable], arrays: Arrays) -> Callable[[], list]:
    query, value, upstream = (tf.constant(arrays[name]) for name in ("query", "value", "upstream"))

    @tf.function
    def run(query, value, upstream):
        with tf.GradientTape() as tape:
            tape.watch([query, value])
            context = forward(query, value)
        wanted = [query, value, *(variable.value for variable in variables)]
        return [context, *tape.gradient(context, wanted, output_gradients=upstream)]

    return lambda: run(query, value, upstream)


def with_torch(forward: Callable, arrays: Arrays) -> Callable[[], list]:
    import torch

    tensors = [torch.tensor(a, requires_grad=True) for name, a in arrays.items() if name != "upstream"]
    upstream = torch.tensor(arrays["upstream"])

    def run():
        context = forward(*tensors)
        return [context.detach(), *torch.autograd.grad(context, tensors, upstream)]

    return run
