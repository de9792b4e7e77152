"""Resampling in the graph, next to soxr."""

import numpy as np
import pytest
import soxr
import tensorflow as tf

from attention_apps.preprocessing.resample_graph import resample, resampled_length

NEW_RATE = 16_000
graph = tf.function(
    lambda waveform, rate: resample(waveform, rate, NEW_RATE),
    input_signature=[tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.int64)],
    autograph=False,
)


def noise(rate, highest, seconds=0.7):
    """Noise up to a frequency, soft at its ends, which would hold others if they were hard."""
    size = round(seconds * rate) + 3
    spectrum = np.fft.rfft(np.random.default_rng(rate).normal(size=size))
    spectrum[np.fft.rfftfreq(size, 1 / rate) > highest] = 0
    samples = np.fft.irfft(spectrum, size) * np.hanning(size)
    return (samples / np.abs(samples).max()).astype(np.float32)


@pytest.mark.parametrize("rate", [8_000, 11_025, 15_999, 16_001, 22_050, 44_100, 48_000, 96_000, 383_999])
def test_it_is_what_soxr_makes_of_it(rate):
    """Within a thousandth, where the sound is below 0.9 of what the lower rate can hold."""
    samples = noise(rate, 0.45 * min(rate, NEW_RATE))
    ours, expected = graph(samples, rate).numpy(), soxr.resample(samples, rate, NEW_RATE)
    assert len(ours) == len(expected) == int(resampled_length(len(samples), rate, NEW_RATE))
    np.testing.assert_allclose(ours, expected, atol=1e-3)


def test_what_the_new_rate_cannot_hold_is_gone():
    tone = np.sin(2 * np.pi * 12_000 * np.arange(44_100) / 44_100).astype(np.float32)
    left = graph(tone, 44_100).numpy()[1_000:-1_000]
    assert np.abs(left).max() < 1e-4


@pytest.mark.parametrize("rate", [100, 384_000])
def test_few_samples_and_the_limits_of_the_rates(rate):
    for length in (1, 2, 97):
        samples = np.ones(length, np.float32)
        ours = graph(samples, rate).numpy()
        assert len(ours) == int(np.floor(length * NEW_RATE / rate + 0.5))
        assert np.isfinite(ours).all()
