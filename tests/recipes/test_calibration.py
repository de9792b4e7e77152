import numpy as np
import pytest

from tests.recipes.loading import load

calibration = load("calibration")


def made_up_answers(slope, offset, count=4000):
    random = np.random.default_rng(0)
    raw = random.uniform(0.05, 0.95, count)
    right = random.uniform(size=count) < calibration.apply(raw, slope, offset)
    return raw, right


@pytest.mark.parametrize(("slope", "offset"), [(1.0, 0.0), (2.5, -1.0), (0.5, 2.0)])
def test_the_fit_finds_what_made_the_answers(slope, offset):
    raw, right = made_up_answers(slope, offset)
    found = calibration.fit(raw, right)
    assert found == pytest.approx((slope, offset), abs=0.25)
    assert calibration.expected_calibration_error(calibration.apply(raw, *found), right) < 0.03


def test_confidences_close_to_1_are_fitted():
    random = np.random.default_rng(0)
    raw = random.uniform(0.9, 0.999, 2000)
    slope, offset = calibration.fit(raw, random.uniform(size=2000) < 0.5)
    assert calibration.apply(raw, slope, offset).mean() == pytest.approx(0.5, abs=0.05)


def test_confidence_that_is_too_high_has_an_error():
    raw, right = made_up_answers(1.0, -2.0)
    assert calibration.expected_calibration_error(raw, right) > 0.2


def test_confidence_is_never_turned_around():
    raw, right = made_up_answers(1.0, 0.0)
    slope, _ = calibration.fit(raw, ~right)
    assert slope == 0.0


def test_reliability_has_a_row_for_each_bin_with_items():
    rows = calibration.reliability([0.05, 0.05, 1.0], [False, True, True])
    assert rows == [pytest.approx((2 / 3, 0.05, 0.5)), pytest.approx((1 / 3, 1.0, 1.0))]


def test_a_picture_is_drawn(tmp_path):
    calibration.draw_reliability([0.2, 0.8], [False, True], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
