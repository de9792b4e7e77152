import numpy as np
import pytest

from attention_apps.preprocessing.audio import SAMPLE_RATE
from attention_apps.preprocessing.audio_augmentation import (
    AudioAugmentation,
    SpecAugment,
    add_noise,
    change_speed,
    reverberate,
)

SIZE = 11_003


def tone(frequency=500.0, size=SIZE):
    return (0.3 * np.sin(2 * np.pi * frequency * np.arange(size) / SAMPLE_RATE)).astype("float32")


def peak_frequency(waveform):
    spectrum = np.abs(np.fft.rfft(waveform * np.hanning(len(waveform))))
    return np.argmax(spectrum) * SAMPLE_RATE / len(waveform)


def generator(seed=0):
    return np.random.default_rng(seed)


def change_volume(decibels):
    return AudioAugmentation(0.0, (1.0,), 0.0, noise_probability=0.0, volume_probability=1.0, volume_decibels=decibels)


WAVEFORM_FUNCTIONS = {
    "volume": change_volume((-10.0, 10.0)),
    "noise": lambda x, random: add_noise(x, random, (0, 20)),
    "reverberation": lambda x, random: reverberate(x, random, (0.1, 0.4)),
    "all": AudioAugmentation(),
}


@pytest.mark.parametrize("name", WAVEFORM_FUNCTIONS)
def test_the_result_depends_on_the_generator_only(name):
    change, before = WAVEFORM_FUNCTIONS[name], tone()
    first, again, other = change(before, generator(1)), change(before, generator(1)), change(before, generator(3))
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first, again)
    assert len(first) != len(other) or not np.allclose(first, other)
    np.testing.assert_array_equal(before, tone())


@pytest.mark.parametrize("factor", [0.85, 1.0, 1.15])
def test_speed_changes_duration_and_pitch(factor):
    changed = change_speed(tone(), factor)
    assert changed.dtype == np.float32
    assert len(changed) == pytest.approx(SIZE / factor, abs=1)
    assert peak_frequency(changed) == pytest.approx(500 * factor, abs=3)


def test_volume_changes_by_decibels_and_clips():
    np.testing.assert_allclose(change_volume((-6, -6))(tone(), generator()), tone() * 10 ** (-6 / 20), rtol=1e-5)
    loud = change_volume((30, 30))(tone(), generator())
    assert (np.abs(loud) == 1).mean() > 0.5


@pytest.mark.parametrize("decibels", [0.0, 20.0])
def test_noise_has_its_share_of_the_power(decibels):
    noise = add_noise(tone(), generator(), (decibels, decibels)) - tone()
    ratio = np.mean(np.square(tone())) / np.mean(np.square(noise))
    assert 10 * np.log10(ratio) == pytest.approx(decibels, abs=0.1)


def test_noise_does_not_need_a_sound():
    assert np.isfinite(add_noise(np.zeros(5, "float32"), generator(), (0, 0))).all()


def test_an_echo_decays_and_is_not_late():
    impulse = reverberate(np.eye(1, 6400, dtype="float32")[0], generator(), (0.4, 0.4))  # the echo of a click
    assert impulse[0] == pytest.approx(1, abs=1e-6)
    assert np.abs(impulse[1:32]).max() < 1e-6  # for 2 ms
    assert 0.1 <= np.sum(np.square(impulse[1:])) <= 0.5
    quarters = [np.mean(np.square(part)) for part in np.array_split(impulse[200:], 4)]
    np.testing.assert_allclose(10 * np.log10(quarters[0] / quarters[2]), 30, atol=4)  # half of 60 dB
    click = np.zeros(9000, "float32")
    click[1000] = 0.5
    echoed = reverberate(click, generator(), (0.3, 0.3))
    assert len(echoed) == 9000
    assert np.abs(echoed[:1000]).max() < 1e-6
    assert np.argmax(np.abs(echoed)) == 1000
    assert np.abs(echoed[1200:]).max() > 1e-3


def test_nothing_happens_where_nothing_is_asked_for():
    nothing = AudioAugmentation(0.0, reverberation_probability=0.0, noise_probability=0.0, volume_probability=0.0)
    np.testing.assert_array_equal(nothing(tone(), generator()), tone())


def test_spec_augment_hides_bands_and_stretches():
    features = np.ones((101, 64), "float32")
    widths, lengths = [], []
    for seed in range(100):
        hidden = SpecAugment()(features, generator(seed)) == 0
        bands, stretches = hidden.all(axis=0), hidden.all(axis=1)
        np.testing.assert_array_equal(hidden, bands[np.newaxis] | stretches[:, np.newaxis])
        widths.append(bands.sum())
        lengths.append(stretches.sum())
    assert (features == 1).all()
    assert 0 < np.mean(widths) < max(widths) <= 24
    assert 0 < np.mean(lengths) < max(lengths) <= 20  # twice a tenth of the utterance


def test_spec_augment_leaves_short_utterances_their_frames():
    features = np.ones((9, 5), "float32")
    for seed in range(20):
        assert not (SpecAugment(frequency_masks=0)(features, generator(seed)) == 0).any()
        assert SpecAugment()(features, generator(seed)).shape == (9, 5)


def test_a_speed_of_nothing_is_an_error():
    with pytest.raises(ValueError, match=r"`factor` must be at least 0.01. Received: factor=0"):
        change_speed(tone(), 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise_probability": 1.5}, r"`noise_probability` must be between 0 and 1. Received: noise_probability=1.5"),
        ({"volume_decibels": (3.0, -3.0)}, "`volume_decibels` must be a range with the lower end first"),
        ({"speeds": ()}, "`speeds` must be one or more factors above 0"),
        ({"max_mels": -1}, "`max_mels` must be at least 0. Received: max_mels=-1"),
        ({"max_time_fraction": 2.0}, "`max_time_fraction` must be between 0 and 1"),
    ],
)
def test_wrong_options_are_explained(options, message):
    kind = SpecAugment if next(iter(options)).startswith("max") else AudioAugmentation
    with pytest.raises(ValueError, match=message):
        kind(**options)
