"""The state of a step function: nested dicts of tensors with one row per hypothesis."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import keras
from keras import ops, tree

Tensor: TypeAlias = Any  # a tensor of whichever backend Keras runs on
State: TypeAlias = Mapping[str, Any]  # nested dicts of tensors
Step: TypeAlias = Callable[[Tensor, State], tuple[Tensor, State]]

# Entries below this key keep one row per item. They are not repeated for the hypotheses of an item.
PER_ITEM = "per_item"


def as_tensors(state: State) -> State:
    """Convert all entries to tensors and check that each has a batch axis."""
    state = tree.map_structure(ops.convert_to_tensor, state)
    shapes = [tuple(tensor.shape) for tensor in tree.flatten(state)]
    if not all(shapes):
        raise ValueError(f"Every entry of `state` must have a batch axis. Received: shapes {shapes}")
    return state


def batch_size(state: State) -> int | Tensor:
    """The length of the batch axis, taken from the first entry."""
    entries = tree.flatten(state)
    if not entries:
        raise ValueError(f"`state` must hold a tensor, whose first axis is the batch. Received: state={state}")
    return ops.shape(entries[0])[0]


def repeat_rows(tensor: Tensor, count: int) -> Tensor:
    """Repeat each row `count` times, the copies next to each other."""
    return tensor if count == 1 else ops.repeat(tensor, count, axis=0)


def repeat_state(state: State, count: int) -> State:
    """Repeat each row of each entry `count` times, except below `PER_ITEM`."""
    entries = [_repeat_entry(path, entry, count) for path, entry in tree.flatten_with_path(state)]
    return tree.pack_sequence_as(state, entries)


def keep_shape(tensor: Tensor, reference: Tensor) -> Tensor:
    """Give `tensor` the static shape of `reference`, as loop variables in a TensorFlow graph must have."""
    tensor = ops.convert_to_tensor(tensor)
    if keras.backend.backend() == "tensorflow":
        tensor.set_shape(reference.shape)
    return tensor


class SplitState:
    """Separates the entries that change from step to step from those that depend on the source only.

    A step returns an entry of the second kind as the same tensor object it was given. These entries are repeated
    for the hypotheses once, or not at all below `PER_ITEM`. They are never reordered and are not loop variables.

    Args:
        before: the state given to the first step, one row per item.
        after: the state that the first step returned.
        copies: hypotheses per item.
    """

    def __init__(self, before: State, after: State, copies: int) -> None:
        self.structure = after
        pairs = list(zip(tree.flatten_with_path(before), _flatten_like(before, after)))
        changed = [path for (path, old), new in pairs if PER_ITEM in path and new is not old]
        if changed:
            raise ValueError(f"`step` must return entries below {PER_ITEM!r} unchanged. Received: changed {changed}")
        self.fixed = [_repeat_entry(path, old, copies) if new is old else None for (path, old), new in pairs]

    def moving(self, state: State) -> list[Tensor]:
        """Select the entries that change from a state that `step` returned."""
        entries = _flatten_like(self.structure, state)
        return [entry for entry, fixed in zip(entries, self.fixed) if fixed is None]

    def join(self, moving: list[Tensor]) -> State:
        """Build the whole state from the entries that change."""
        remaining = iter(moving)
        entries = [next(remaining) if fixed is None else fixed for fixed in self.fixed]
        return tree.pack_sequence_as(self.structure, entries)


def _repeat_entry(path: tuple, entry: Tensor, count: int) -> Tensor:
    return entry if PER_ITEM in path else repeat_rows(entry, count)


def _flatten_like(expected: State, state: State) -> list[Tensor]:
    try:
        tree.assert_same_structure(expected, state)
    except ValueError as error:
        raise ValueError(f"`step` must return a state with the structure of the one it was given. {error}") from None
    return tree.flatten(state)
