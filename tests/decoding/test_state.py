import numpy as np
import pytest
from keras import ops

from attention_apps.decoding.state import SplitState, as_tensors, batch_size, repeat_rows, repeat_state


def test_rows_are_repeated_one_after_the_other():
    assert np.array(repeat_rows(ops.convert_to_tensor([3, 5]), 2)).tolist() == [3, 3, 5, 5]


def test_what_a_step_hands_back_untouched_is_told_from_what_changes():
    before = as_tensors(
        {"keys": np.ones((2, 4)), "cell": {"hidden": np.zeros((2, 3)), "mask": np.ones((2, 4), "bool")}}
    )
    after = {"keys": before["keys"], "cell": {"hidden": before["cell"]["hidden"] + 1, "mask": before["cell"]["mask"]}}
    split = SplitState(before, after, copies=3)
    (hidden,) = split.moving(after)
    assert hidden is after["cell"]["hidden"]
    joined = split.join([repeat_rows(hidden, 3)])
    assert tuple(joined["keys"].shape) == (6, 4)
    assert tuple(joined["cell"]["mask"].shape) == (6, 4)
    assert tuple(joined["cell"]["hidden"].shape) == (6, 3)
    assert split.join([hidden])["keys"] is joined["keys"]


def test_what_is_there_once_per_item_is_not_repeated():
    before = as_tensors({"z": {"per_item": {"b": np.ones((2, 4)), "a": np.ones((2, 5))}}, "hidden": np.array([3, 5])})
    repeated = repeat_state(before, 2)
    assert np.array(repeated["hidden"]).tolist() == [3, 3, 5, 5]
    assert all(repeated["z"]["per_item"][name] is before["z"]["per_item"][name] for name in ("a", "b"))
    joined = SplitState(before, {**before, "hidden": before["hidden"] + 1}, copies=2).join([repeated["hidden"]])
    assert all(joined["z"]["per_item"][name] is before["z"]["per_item"][name] for name in ("a", "b"))
    with pytest.raises(ValueError, match=r"must return entries below 'per_item' unchanged\. Received: changed"):
        SplitState(before, {**before, "z": {"per_item": {"b": before["z"]["per_item"]["b"] + 1, "a": 0}}}, copies=2)


def test_a_state_has_an_entry_and_every_entry_a_batch_axis():
    assert batch_size(as_tensors({"hidden": np.zeros((3, 2))})) == 3
    with pytest.raises(
        ValueError, match=r"`state` must hold a tensor, whose first axis is the batch. Received: state=\{\}"
    ):
        batch_size({})
    with pytest.raises(ValueError, match=r"Every entry of `state` must have a batch axis\. Received: shapes"):
        as_tensors({"position": np.array(0), "hidden": np.zeros((3, 2))})


def test_a_step_that_changes_the_structure_of_its_state_is_an_error():
    before = as_tensors({"hidden": np.zeros((2, 3))})
    with pytest.raises(ValueError, match="`step` must return a state with the structure of the one it was given"):
        SplitState(before, {"hidden": before["hidden"], "cell": before["hidden"]}, copies=2)
