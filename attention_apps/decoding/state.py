"""The state that a step takes and hands back: nested dicts of tensors, one row for each hypothesis."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops, tree

Tensor = Any
State = Any
Step = Callable[[Tensor, State], tuple[Tensor, State]]

# What is below this key of a state keeps one row for each item, however many hypotheses an item has.
PER_ITEM = "per_item"


def as_tensors(state: State) -> State:
    """The state with arrays turned into tensors, every one of which has a batch axis."""
    state = tree.map_structure(ops.convert_to_tensor, state)
    shapes = [tuple(tensor.shape) for tensor in tree.flatten(state)]
    if not all(shapes):
        raise ValueError(f"Every entry of `state` must have a batch axis. Received: shapes {shapes}")
    return state


def batch_size(state: State) -> int | Tensor:
    """Length of the batch axis of the first entry."""
    entries = tree.flatten(state)
    if not entries:
        raise ValueError(f"`state` must hold a tensor, whose first axis is the batch. Received: state={state}")
    return ops.shape(entries[0])[0]


def repeat_rows(tensor: Tensor, count: int) -> Tensor:
    """Each row `count` times, one after the other."""
    return tensor if count == 1 else ops.repeat(tensor, count, axis=0)


def repeat_state(state: State, count: int) -> State:
    """The state with `count` rows for each item, but for what is below `PER_ITEM`."""
    entries = [_repeat_entry(path, entry, count) for path, entry in tree.flatten_with_path(state)]
    return tree.pack_sequence_as(state, entries)


def keep_shape(tensor: Tensor, reference: Tensor) -> Tensor:
    """`tensor` with the static sizes of `reference`, which a loop in a TensorFlow graph asks to have back."""
    tensor = ops.convert_to_tensor(tensor)
    if keras.backend.backend() == "tensorflow":
        tensor.set_shape(reference.shape)
    return tensor


class SplitState:
    """Tells what changes from step to step from what depends on the source only.

    A step hands back the second kind as the very tensor it was given. Those entries are repeated for every
    hypothesis once, or not at all below `PER_ITEM`, and are never reordered, nor even variables of the loop.

    Args:
        before: the state given to the first step, one row for each item.
        after: the state it handed back.
        copies: hypotheses for each item.
    """

    def __init__(self, before: State, after: State, copies: int) -> None:
        self.structure = after
        pairs = list(zip(tree.flatten_with_path(before), _flatten_like(before, after)))
        changed = [path for (path, old), new in pairs if PER_ITEM in path and new is not old]
        if changed:
            raise ValueError(f"`step` must hand back what is below {PER_ITEM!r} as it was. Received: other {changed}")
        self.fixed = [_repeat_entry(path, old, copies) if new is old else None for (path, old), new in pairs]

    def moving(self, state: State) -> list[Tensor]:
        """The entries that change, of a state that `step` handed back."""
        entries = _flatten_like(self.structure, state)
        return [entry for entry, fixed in zip(entries, self.fixed) if fixed is None]

    def join(self, moving: list[Tensor]) -> State:
        """The whole state, from the entries that change."""
        remaining = iter(moving)
        entries = [next(remaining) if fixed is None else fixed for fixed in self.fixed]
        return tree.pack_sequence_as(self.structure, entries)


def _repeat_entry(path: tuple, entry: Tensor, count: int) -> Tensor:
    return entry if PER_ITEM in path else repeat_rows(entry, count)


def _flatten_like(expected: State, state: State) -> list[Tensor]:
    try:
        tree.assert_same_structure(expected, state)
    except ValueError as error:
        raise ValueError(f"`step` must hand back a state built like the one it was given. {error}") from None
    return tree.flatten(state)
