import math

import numpy as np
import pytest
import tensorflow as tf

from attention_apps.applications.confidence import ConfidenceConfig, calibrated, geometric_mean
from attention_apps.training.config import read_config

RAW = tf.constant([0.0, 0.2, 0.5, 0.9, 1.0])


def test_without_a_calibration_the_confidence_is_the_raw_one():
    outputs = calibrated(RAW, ConfidenceConfig())
    np.testing.assert_array_equal(outputs["confidence"], RAW)
    assert not outputs["unsure"].numpy().any()


def test_a_calibration_is_a_line_in_logits():
    confidence = calibrated(RAW, ConfidenceConfig(slope=2.0, offset=-1.0))["confidence"].numpy()
    logit = 2 * math.log(0.2 / 0.8) - 1
    assert confidence[1] == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-5)
    assert confidence[2] == pytest.approx(1 / (1 + math.e), rel=1e-5)


@pytest.mark.parametrize("config", [ConfidenceConfig(), ConfidenceConfig(3.0, 2.0), ConfidenceConfig(0.1, -5.0)])
def test_a_confidence_is_a_number_from_0_to_1_and_keeps_the_order(config):
    confidence = calibrated(RAW, config)["confidence"].numpy()
    assert np.isfinite(confidence).all()
    assert 0 <= confidence.min() < confidence.max() <= 1
    assert (np.diff(confidence) > 0).all()


def test_an_answer_below_the_threshold_is_unsure():
    outputs = calibrated(RAW, ConfidenceConfig(threshold=0.5))
    assert outputs["unsure"].numpy().tolist() == [True, True, False, False, False]
    halved = calibrated(RAW, ConfidenceConfig(slope=1.0, offset=-3.0, threshold=0.5))
    assert halved["unsure"].numpy().tolist() == [True, True, True, True, False]


def test_a_geometric_mean_is_over_the_items_that_count():
    probabilities = np.float32([[0.5, 0.25, 0.9], [0.7, 0, 0], [0.3, 0.3, 0.3], [0.4, 0.0, 1.0]])
    counts = np.array([[True, True, False], [True, False, False], [False] * 3, [True] * 3])
    means = geometric_mean(probabilities, counts).numpy()
    np.testing.assert_allclose(means[:3], [np.sqrt(0.125), 0.7, 0], rtol=1e-5)
    assert 0 < means[3] < 1e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slope": -1.0}, "`slope` must be between 0 and 100"),
        ({"offset": 101.0}, "`offset` must be between -100 and 100"),
        ({"threshold": 1.5}, "`threshold` must be between 0 and 1. Received: threshold=1.5"),
    ],
)
def test_values_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        read_config(ConfidenceConfig, changes)
