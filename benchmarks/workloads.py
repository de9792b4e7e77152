"""What all contenders have in common: the sizes of models and batches, random batches, the optimizer and the search.

No sequence is padded: every contender may leave masks out of its recurrent layers, as PyTorch then can.
"""

import dataclasses
from collections.abc import Iterable
from typing import Literal

import numpy as np

START, END, UNKNOWN, FIRST_WORD = 1, 2, 3, 4

# Adam after clipping to a global norm, as this library's training loop does it.
LEARNING_RATE = 1e-3
CLIP_NORM = 5.0
BETAS = (0.9, 0.999)
EPSILON = 1e-7

# In a search nothing ends before the longest length, so that all contenders make the same number of steps.
MAX_LENGTH = 20
NEVER_WRITTEN = (0, START, END)


@dataclasses.dataclass(frozen=True)
class Workload:
    """Sizes of one application's model and of a batch for it.

    Args:
        batch: number of sources.
        targets: targets of each source.
        target_length: tokens of a target, start and end tokens included.
        source_length: regions, frames or words.
        source_dim: features of a region or a frame; 0 for words.
        encoder_units: of one direction; 0 where the features themselves are the memory.
        encoder_layers: bidirectional layers.
        encoder_filters: of the convolutions over a spectrogram.
        location_filters, location_width: of location-sensitive attention.
    """

    application: Literal["captioner", "recognizer", "summarizer"]
    batch: int
    target_length: int
    source_length: int
    vocabulary: int
    embedding_dim: int
    units: int
    attention_units: int
    targets: int = 1
    source_dim: int = 0
    encoder_units: int = 0
    encoder_layers: int = 0
    encoder_filters: int = 0
    location_filters: int = 0
    location_width: int = 0

    @property
    def memory_dim(self) -> int:
        return 2 * self.encoder_units or self.source_dim


WORKLOADS = {
    "captioner": Workload(
        "captioner",
        batch=32,
        targets=5,
        target_length=16,
        source_length=64,
        source_dim=512,
        vocabulary=3000,
        embedding_dim=256,
        units=512,
        attention_units=256,
    ),
    "recognizer": Workload(
        "recognizer",
        batch=16,
        target_length=40,
        source_length=600,
        source_dim=64,
        vocabulary=32,
        embedding_dim=64,
        units=256,
        attention_units=128,
        encoder_units=192,
        encoder_layers=3,
        encoder_filters=32,
        location_filters=10,
        location_width=31,
    ),
    "summarizer": Workload(
        "summarizer",
        batch=64,
        target_length=14,
        source_length=45,
        vocabulary=20000,
        embedding_dim=128,
        units=256,
        attention_units=128,
        encoder_units=224,
        encoder_layers=1,
    ),
}
QUICK_SIZES = {
    "captioner": {"batch": 3, "targets": 2, "target_length": 6, "source_length": 9, "source_dim": 24},
    "recognizer": {"batch": 2, "target_length": 7, "source_length": 41, "source_dim": 16, "encoder_filters": 4},
    "summarizer": {"batch": 4, "target_length": 6, "source_length": 11},
}
QUICK_WIDTHS = {"embedding_dim": 20, "units": 28, "attention_units": 12}


@dataclasses.dataclass(frozen=True)
class TransformerWorkload:
    """Sizes of a Transformer that reads and writes words, and of a batch for it; both halves have the same layers."""

    batch: int
    source_length: int
    vocabulary: int
    layers: int
    width: int
    hidden_dim: int
    heads: int

    application = "translator"


# Compared with the searches of other libraries. Here attention is as wide as the memory and the state, because in some
# of those libraries nothing else can be chosen.
RECURRENT_PEERS = {
    "captioner": dataclasses.replace(WORKLOADS["captioner"], batch=8, targets=1, attention_units=512),
    "summarizer": Workload(
        "captioner",
        batch=8,
        target_length=14,
        source_length=45,
        source_dim=256,
        vocabulary=20000,
        embedding_dim=128,
        units=256,
        attention_units=256,
    ),
}
TRANSFORMER_PEERS = {
    "translator": TransformerWorkload(8, 20, vocabulary=6000, layers=4, width=128, hidden_dim=256, heads=4),
    "BART": TransformerWorkload(8, 40, vocabulary=32000, layers=6, width=512, hidden_dim=2048, heads=8),
}


def quick(name: str) -> Workload:
    """A small version of a workload, for a look at whether everything still runs."""
    workload = WORKLOADS[name]
    sizes = {"vocabulary": min(workload.vocabulary, 60), **QUICK_WIDTHS, **QUICK_SIZES[name]}
    if workload.encoder_units:
        sizes["encoder_units"] = 14
    return dataclasses.replace(workload, **sizes)


def choose_workloads(names: Iterable[str], is_quick: bool) -> dict[str, Workload]:
    return {name: quick(name) if is_quick else WORKLOADS[name] for name in names}


def make_source(workload: Workload | TransformerWorkload, seed: int = 0) -> dict[str, np.ndarray]:
    """The sources of a random batch as arrays."""
    return _make_source(workload, np.random.default_rng(seed))


def make_batch(workload: Workload, seed: int = 0) -> dict:
    """A random batch as arrays: `source`, a dict, and `tokens`."""
    random = np.random.default_rng(seed)
    return {"source": _make_source(workload, random), "tokens": _make_tokens(workload, random)}


def _make_source(workload: Workload, random: np.random.Generator) -> dict[str, np.ndarray]:
    shape = (workload.batch, workload.source_length)
    if workload.application == "translator":
        return {"token_ids": random.integers(FIRST_WORD, workload.vocabulary, shape, dtype="int32")}
    if workload.application == "summarizer":
        token_ids = random.integers(FIRST_WORD, workload.vocabulary, shape, dtype="int32")
        return {"token_ids": token_ids, "source_ids": _extended_ids(token_ids, workload.vocabulary, random)}
    features = random.normal(size=(*shape, workload.source_dim)).astype("float32")
    if workload.application == "captioner":
        return {"features": np.maximum(features, 0)}
    return {"features": features, "mask": np.ones(shape, "bool")}


def _extended_ids(token_ids: np.ndarray, vocabulary: int, random: np.random.Generator) -> np.ndarray:
    """Every twentieth word is one that the vocabulary does not have; its position makes its id."""
    unknown = random.random(token_ids.shape) < 0.05
    return np.where(unknown, vocabulary + np.arange(token_ids.shape[1]), token_ids).astype("int32")


def _make_tokens(workload: Workload, random: np.random.Generator) -> np.ndarray:
    several = (workload.targets,) if workload.targets > 1 else ()
    shape = (workload.batch, *several, workload.target_length)
    tokens = random.integers(FIRST_WORD, workload.vocabulary, shape, dtype="int32")
    tokens[..., 0], tokens[..., -1] = START, END
    return tokens
