import math

import keras
import pytest

from attention_apps.training.schedules import WarmUpSchedule


def rates(schedule, *steps):
    return [float(schedule(step)) for step in steps]


def test_warm_up_reaches_the_peak_in_equal_steps():
    schedule = WarmUpSchedule(0.4, warmup_steps=4)
    assert rates(schedule, 0, 1, 3, 100) == pytest.approx([0.1, 0.2, 0.4, 0.4])


def test_without_warm_up_the_first_step_has_the_peak():
    assert rates(WarmUpSchedule(0.4), 0, 9) == pytest.approx([0.4, 0.4])


def test_linear_decay_ends_at_the_final_fraction():
    schedule = WarmUpSchedule(2.0, 10, "linear", total_steps=110, final_fraction=0.1)
    assert rates(schedule, 9, 60, 110, 500) == pytest.approx([2.0, 1.1, 0.2, 0.2])


def test_cosine_decay_is_half_a_cosine():
    schedule = WarmUpSchedule(2.0, 10, "cosine", total_steps=110)
    expected = [2.0, 1 + math.cos(math.pi / 4), 1.0, 0.0, 0.0]
    assert rates(schedule, 10, 35, 60, 110, 111) == pytest.approx(expected, abs=1e-6)


def test_inverse_square_root_follows_the_step():
    schedule = WarmUpSchedule(3.0, 16, "inverse_sqrt")
    assert rates(schedule, 7, 15, 63, 399) == pytest.approx([1.5, 3.0, 1.5, 0.6])


def test_config_makes_an_equal_schedule():
    schedule = WarmUpSchedule(2.0, 3, "cosine", total_steps=20, final_fraction=0.3)
    copy = keras.optimizers.schedules.deserialize(
        keras.optimizers.schedules.serialize(schedule), custom_objects={"WarmUpSchedule": WarmUpSchedule}
    )
    assert rates(copy, 0, 7, 30) == rates(schedule, 0, 7, 30)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "step"}, "`kind` must be one of constant, linear, cosine, inverse_sqrt. Received: kind='step'"),
        ({"kind": "cosine"}, "`total_steps` must be given for a cosine schedule. Received: total_steps=None"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        WarmUpSchedule(1.0, **arguments)
