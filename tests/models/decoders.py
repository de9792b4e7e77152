"""The decoders and attention layers that the tests of models go through."""

import numpy as np
from keras import ops

from attention_apps import layers
from attention_apps.models import RecurrentDecoder, TransformerDecoder

B, N, T, S, D, V, E, U = 2, 3, 4, 5, 6, 11, 7, 8

ATTENTIONS = {
    "none": lambda: None,
    "additive": lambda: layers.AdditiveAttention(9),
    "luong dot": lambda: layers.LuongAttention(score="dot"),
    "luong general": lambda: layers.LuongAttention(score="general"),
    "luong concat": lambda: layers.LuongAttention(score="concat", units=9),
    "luong local-m": lambda: layers.LuongAttention(score="general", window="local-m", half_width=1),
    "luong local-p": lambda: layers.LuongAttention(score="general", window="local-p", half_width=1),
    "scaled dot-product": lambda: layers.ScaledDotProductAttention(),
    "multi-head": lambda: layers.MultiHeadAttention(num_heads=2, key_dim=4),
    "location-sensitive": lambda: layers.LocationSensitiveAttention(9, filters=2, kernel_size=3),
    "coverage": lambda: layers.CoverageAttention(9),
    "monotonic": lambda: layers.MonotonicAttention(9),
    "hard": lambda: layers.HardAttention(layers.AdditiveAttention(9)),
    "hard gumbel": lambda: layers.HardAttention(layers.AdditiveAttention(9), estimator="gumbel"),
    "hard straight-through": lambda: layers.HardAttention(layers.AdditiveAttention(9), estimator="straight_through"),
}

RECURRENT = {
    "before": {},
    "before gated deep": {"context_gate": "scalar", "deep_output": True, "tied_embeddings": True},
    "before gru two layers": {"cell": "gru", "num_layers": 2, "context_gate": "vector"},
    "after": {"attend": "after", "initial_state": "last"},
    "after gru two layers tied": {"attend": "after", "cell": "gru", "num_layers": 2, "tied_embeddings": True},
    "after input feeding": {"attend": "after", "input_feeding": True, "initial_state": "zeros"},
    "variational": {"dropout": 0.3, "variational": True, "deep_output": True},
}

# What a dot product needs: queries and values of the same width.
SAME_WIDTH = ("luong dot", "scaled dot-product")


def make_recurrent(attention="additive", **options):
    if attention == "none":
        options.pop("context_gate", None)
    units = D if attention in SAME_WIDTH else U
    return RecurrentDecoder(V, E, units, attention=ATTENTIONS[attention](), **options)


def make_transformer(**options):
    return TransformerDecoder(V, 8, num_layers=2, num_heads=2, hidden_dim=9, **options)


def make_memory(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "values": ops.convert_to_tensor(rng.normal(size=(B, S, D)).astype("float32")),
        "mask": ops.convert_to_tensor(np.arange(S) < np.array([[S], [3]])),
        "state": [ops.convert_to_tensor(rng.normal(size=(B, 3)).astype("float32")) for _ in range(2)],
        "source_ids": ops.convert_to_tensor(np.array([[4, V + 1, 6, V + 3, V + 1], [V, 5, 5, 0, 0]], "int32")),
    }


def make_tokens(*shape, seed=1, largest=V):
    return np.random.default_rng(seed).integers(1, largest, shape).astype("int32")


def stepwise(decoder, tokens, memory):
    """The logits of each step, one step at a time."""
    state, logits = decoder.init_state(memory), []
    for position in range(tokens.shape[1]):
        step_logits, state = decoder.step(ops.convert_to_tensor(tokens[:, position]), state)
        logits.append(ops.convert_to_numpy(step_logits))
    return np.stack(logits, axis=1), state
