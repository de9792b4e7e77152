"""Batches whose order depends only on the seed and the epoch, so that a run can resume in the middle of an epoch."""

import itertools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from keras import tree

from attention_apps.checks import require, require_at_least

# Relative noise added to lengths before sorting by them, so that every epoch has different batches.
_LENGTH_JITTER = 0.1
# Independent streams of random numbers: the order of an epoch and the augmentation of an example.
_ORDER_STREAM, _AUGMENT_STREAM = 1, 2

# TensorFlow never frees a Python function that is part of a graph. The function it gets here, `_compute`, looks up
# the batches by number, so that they and their examples can be freed.
_LIVING: weakref.WeakValueDictionary[int, "Batches"] = weakref.WeakValueDictionary()
_NUMBERS = itertools.count()

Example = Mapping[str, Any]


class IndexedExamples(Protocol):
    """Examples by number, from 0 on."""

    def __getitem__(self, index: int) -> Example: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class _Plan:
    """An epoch: the selected examples, and for each batch the positions of its examples in that selection."""

    selected: np.ndarray
    batches: list[np.ndarray]


class Batches:
    """Bucketed, padded and prefetched batches of a sequence of examples.

    Each example appears exactly once per epoch. The order is a pure function of the seed and the epoch, and the random
    numbers of an augmentation are a pure function of the seed, the epoch and the example: batch 700 of epoch 3 is the
    same whether or not earlier batches were computed.

    Args:
        examples: `examples[index]` is a nested dict of arrays, `{"source": {...}, "tokens": ...}`. Accessed from
            several threads.
        signature: a `tf.TensorSpec` for each array of one example, in the same nested dict. Axes of size `None` are
            padded with zeros to the longest of the batch, in masks too.
        batch_size: the maximum number of examples in a batch, over all shards.
        max_batch_length: the maximum total length of a batch after padding. A longer example gets its own batch.
        lengths: the length of each example. Examples of similar length share a batch.
        shuffle: if false, batches come in the order of their lengths, or in the given order without lengths.
        short_first_epochs: the number of initial epochs whose batches are sorted from short to long.
        select: `select(epoch, random)` returns the indices of the examples of an epoch, for curricula and mixtures.
            An index may appear several times and is then augmented differently each time.
        augment: `augment(example, random, epoch)` returns the example to train on.
        pad_to_multiple: pads the last padded axis of each array to a multiple of this, for fewer distinct shapes.
        threads: how many batches are computed at a time.
    """

    def __init__(
        self,
        examples: IndexedExamples,
        signature: Mapping[str, Any],
        *,
        batch_size: int,
        max_batch_length: float | None = None,
        lengths: Sequence[float] | np.ndarray | None = None,
        seed: int = 0,
        shuffle: bool = True,
        short_first_epochs: int = 0,
        select: Callable[[int, np.random.Generator], Sequence[int] | np.ndarray] | None = None,
        augment: Callable[[Example, np.random.Generator, int], Example] | None = None,
        pad_to_multiple: int = 1,
        threads: int = 2,
    ):
        if not len(examples):
            raise ValueError("`examples` must have at least one example.")
        self.examples = examples
        self.batch_size = batch_size
        self.max_batch_length = max_batch_length
        self.lengths = None if lengths is None else _check_lengths(lengths, len(examples))
        self.seed = seed
        self.shuffle = shuffle
        self.short_first_epochs = short_first_epochs
        self.select = select
        self.augment = augment
        self.pad_to_multiple = pad_to_multiple
        self.threads = threads
        self._signature = signature
        self._entries = tree.flatten_with_path(signature)
        self._plans: dict[int, _Plan] = {}
        self._lock = threading.Lock()
        self._number = next(_NUMBERS)
        _LIVING[self._number] = self
        require_at_least(self, 1, "batch_size", "pad_to_multiple", "threads")
        if lengths is None and (max_batch_length is not None or short_first_epochs):
            raise ValueError("`max_batch_length` and `short_first_epochs` need the `lengths` of the examples.")
        is_positive = max_batch_length is None or max_batch_length > 0
        require(is_positive, "max_batch_length", "more than 0", max_batch_length)

    def num_batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch, which varies if `max_batch_length` is set."""
        return len(self._plan(epoch).batches)

    def rows(self, epoch: int, batch: int, shard: int = 0, num_shards: int = 1) -> np.ndarray:
        """Return the indices of the examples of one batch, in the order of its rows."""
        plan = self._plan(epoch)
        return plan.selected[plan.batches[batch][shard::num_shards]]

    def batches(self, epoch: int, start: int = 0, shard: int = 0, num_shards: int = 1) -> tf.data.Dataset:
        """Return the batches of an epoch, beginning with number `start`. Earlier batches are not computed.

        With `num_shards` workers, each gets its part of every batch. If a batch has too few examples for all workers,
        the part is one row of padding, which contributes no tokens.
        """
        end = self.num_batches(epoch)
        require(0 <= start <= end, "start", f"between 0 and {end}", start)
        require(0 <= shard < num_shards, "shard", f"between 0 and {num_shards - 1}", shard)
        number, signature, specs = self._number, self._signature, [spec for _, spec in self._entries]

        def load(batch: tf.Tensor) -> dict[str, Any]:
            where = [number, epoch, batch, shard, num_shards]
            arrays = tf.numpy_function(_compute, where, [spec.dtype for spec in specs], stateful=False)
            for array, spec in zip(arrays, specs):
                array.set_shape([None, *spec.shape])
            return tree.pack_sequence_as(signature, arrays)

        dataset = tf.data.Dataset.range(start, end).map(load, num_parallel_calls=self.threads, deterministic=True)
        dataset.batches = self  # keeps the batches alive while anything iterates over them
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        # There is nothing to tune, and the end of an iteration would wait for the tuner's thread, for up to a minute.
        options.autotune.enabled = False
        return dataset.prefetch(2).with_options(options)

    def compute(self, epoch: int, batch: int, shard: int = 0, num_shards: int = 1) -> list[np.ndarray]:
        """Compute one batch: an array for each entry of the signature, in order."""
        plan = self._plan(epoch)
        positions = plan.batches[batch][shard::num_shards].tolist()
        return self._pad([self._example(plan, epoch, position) for position in positions])

    def _plan(self, epoch: int) -> _Plan:
        with self._lock:
            if epoch not in self._plans:
                self._plans = dict([*self._plans.items()][-1:])  # keep this epoch and the one before it
                self._plans[epoch] = self._make_plan(epoch)
            return self._plans[epoch]

    def _make_plan(self, epoch: int) -> _Plan:
        random = np.random.default_rng([_ORDER_STREAM, self.seed, epoch])
        selected = self._select(epoch, random)
        in_order = not self.shuffle or epoch < self.short_first_epochs
        positions = np.arange(len(selected)) if not self.shuffle else random.permutation(len(selected))
        if self.lengths is not None:
            keys = self.lengths[selected[positions]]
            if not in_order:
                keys = keys * random.uniform(1 - _LENGTH_JITTER, 1 + _LENGTH_JITTER, len(keys))
            positions = positions[np.argsort(keys, kind="stable")]
        batches = self._cut(positions, selected)
        if not in_order:
            batches = [batches[i] for i in random.permutation(len(batches))]
        return _Plan(selected, batches)

    def _select(self, epoch: int, random: np.random.Generator) -> np.ndarray:
        if self.select is None:
            return np.arange(len(self.examples))
        selected = np.asarray(self.select(epoch, random), dtype=np.int64)
        wrong = selected[(selected < 0) | (selected >= len(self.examples))]
        if len(wrong):
            raise ValueError(f"`select` gave index {wrong[0]}, but there are {len(self.examples)} examples.")
        if not len(selected):
            raise ValueError(f"`select` gave no example for epoch {epoch}.")
        return selected

    def _cut(self, positions: np.ndarray, selected: np.ndarray) -> list[np.ndarray]:
        """Cut a sorted epoch into batches as large as the limits allow."""
        if self.max_batch_length is None or self.lengths is None:
            return [positions[i : i + self.batch_size] for i in range(0, len(positions), self.batch_size)]
        starts, longest = [0], 0.0
        for end, length in enumerate(self.lengths[selected[positions]].tolist()):
            longest = max(longest, length)
            size = end - starts[-1]
            if size and (size >= self.batch_size or longest * (size + 1) > self.max_batch_length):
                starts.append(end)
                longest = length
        return [batch for batch in np.split(positions, starts[1:]) if len(batch)]

    def _example(self, plan: _Plan, epoch: int, position: int) -> list[np.ndarray]:
        index = int(plan.selected[position])
        try:
            example = self.examples[index]
            if self.augment is not None:
                random = np.random.default_rng([_AUGMENT_STREAM, self.seed, epoch, position])
                example = self.augment(example, random, epoch)
            return [_entry(example, path, spec) for path, spec in self._entries]
        except Exception as error:
            raise ValueError(f"Example {index} cannot be used: {error}") from error

    def _pad(self, examples: list[list[np.ndarray]]) -> list[np.ndarray]:
        batch = []
        for number, (_, spec) in enumerate(self._entries):
            arrays = [example[number] for example in examples]
            # Without examples the length is 2, so that a loop over all tokens but the last has one iteration.
            shape = [max((a.shape[i] for a in arrays), default=2) if n is None else n for i, n in enumerate(spec.shape)]
            padded_axes = [i for i, size in enumerate(spec.shape) if size is None]
            if padded_axes:
                shape[padded_axes[-1]] = -(-shape[padded_axes[-1]] // self.pad_to_multiple) * self.pad_to_multiple
            padded = np.zeros((max(len(arrays), 1), *shape), spec.dtype.as_numpy_dtype)
            for row, array in enumerate(arrays):
                place: tuple = (row, *map(slice, array.shape))
                padded[place] = array
            batch.append(padded)
        return batch


def _compute(number: int, epoch: int, batch: int, shard: int, num_shards: int) -> list[np.ndarray]:
    return _LIVING[int(number)].compute(int(epoch), int(batch), int(shard), int(num_shards))


def _check_lengths(lengths: Sequence[float] | np.ndarray, count: int) -> np.ndarray:
    lengths = np.asarray(lengths, dtype=np.float64)
    if lengths.shape != (count,):
        raise ValueError(f"`lengths` must have one number for each of the {count} examples. Received: {lengths.shape}")
    if not (np.isfinite(lengths) & (lengths >= 0)).all():
        raise ValueError("`lengths` must be finite numbers, 0 or more.")
    return lengths


def _entry(example: Example, path: tuple[str, ...], spec: tf.TensorSpec) -> np.ndarray:
    value: Any = example
    for name in path:
        if name not in value:
            raise ValueError(f"it has no entry `{'.'.join(path)}`")
        value = value[name]
    array = np.asarray(value)
    if not spec.shape.is_compatible_with(array.shape):
        raise ValueError(f"`{'.'.join(path)}` must have shape {tuple(spec.shape)}. Received: {array.shape}")
    if not np.can_cast(array.dtype, spec.dtype.as_numpy_dtype, "same_kind"):
        raise ValueError(f"`{'.'.join(path)}` must be of type {spec.dtype.name}. Received: {array.dtype}")
    return array
