import numpy as np
import pytest
from keras import ops

from attention_apps.decoding.state import SplitState, as_tensors, batch_size, repeat_rows


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
    with pytest.raises(ValueError, match="`step` must hand back a state built like the one it was given"):
        SplitState(before, {"hidden": before["hidden"], "cell": before["hidden"]}, copies=2)
