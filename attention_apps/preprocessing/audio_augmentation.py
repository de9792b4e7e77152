"""Audio augmentation for training: random speed, reverberation, noise and volume.

All functions are pure: randomness comes from an explicit generator.
"""

from dataclasses import dataclass

import numpy as np
import soxr

from attention_apps.preprocessing.audio import SAMPLE_RATE

# Speeds are rounded to 1/100, so that the resampler works with integers.
_SPEED_STEPS = 100
_TINY_POWER = 1e-12


@dataclass(frozen=True)
class AudioAugmentation:
    """Waveform augmentations. Each has a probability and a range from which its strength is drawn."""

    speed_probability: float = 1.0
    speeds: tuple[float, ...] = (0.85, 0.93, 1.0, 1.07, 1.15)
    reverberation_probability: float = 0.3
    reverberation_seconds: tuple[float, float] = (0.1, 0.5)
    noise_probability: float = 0.5
    noise_decibels: tuple[float, float] = (5.0, 30.0)
    volume_probability: float = 0.5
    volume_decibels: tuple[float, float] = (-12.0, 12.0)

    def __post_init__(self) -> None:
        for kind in ("speed", "reverberation", "noise", "volume"):
            name = f"{kind}_probability"
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"`{name}` must be between 0 and 1. Received: {name}={getattr(self, name)}")
        for name in ("reverberation_seconds", "noise_decibels", "volume_decibels"):
            if not getattr(self, name)[0] <= getattr(self, name)[1]:
                raise ValueError(f"`{name}` must be a range with the lower end first. Received: {getattr(self, name)}")
        if not self.speeds or min(self.speeds) <= 0:
            raise ValueError(f"`speeds` must be one or more factors above 0. Received: speeds={self.speeds}")

    def __call__(self, waveform: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Return a random variation of the waveform `(samples,)`. Its length changes with the speed."""
        if random.random() < self.speed_probability:
            waveform = change_speed(waveform, float(random.choice(self.speeds)))
        if random.random() < self.reverberation_probability:
            waveform = reverberate(waveform, random, self.reverberation_seconds)
        if random.random() < self.noise_probability:
            waveform = add_noise(waveform, random, self.noise_decibels)
        if random.random() < self.volume_probability:
            gain = np.float32(10 ** (random.uniform(*self.volume_decibels) / 20))
            waveform = np.clip(waveform * gain, -1, 1)  # a microphone clips too
        return waveform


@dataclass(frozen=True)
class SpecAugment:
    """Masks frequency bands and time spans of normalized features with zeros (Park et al. 2019, section 2)."""

    # The number of bands and their maximum width in filters. The width is drawn from 0 to the maximum.
    frequency_masks: int = 2
    max_mels: int = 12
    # The number of time spans, and their maximum width in frames and as a fraction of the utterance.
    time_masks: int = 2
    max_frames: int = 30
    max_time_fraction: float = 0.1

    def __post_init__(self) -> None:
        for name in ("frequency_masks", "max_mels", "time_masks", "max_frames"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must be at least 0. Received: {name}={getattr(self, name)}")
        if not 0 <= self.max_time_fraction <= 1:
            raise ValueError(
                f"`max_time_fraction` must be between 0 and 1. Received: max_time_fraction={self.max_time_fraction}"
            )

    def __call__(self, features: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Mask features `(time, mels)` without padding."""
        features = features.copy()
        length, mels = features.shape
        bands = [(features.T, min(self.max_mels, mels))] * self.frequency_masks
        spans = [(features, min(self.max_frames, int(self.max_time_fraction * length)))] * self.time_masks
        for masked, widest in bands + spans:
            width = int(random.integers(0, widest + 1))
            start = int(random.integers(0, len(masked) - width + 1))
            masked[start : start + width] = 0
        return features


def change_speed(waveform: np.ndarray, factor: float) -> np.ndarray:
    """Play a recording faster (`factor` above 1) or slower by resampling, which also shifts the pitch."""
    steps = round(factor * _SPEED_STEPS)
    if steps < 1:
        raise ValueError(f"`factor` must be at least {1 / _SPEED_STEPS}. Received: factor={factor}")
    return waveform if steps == _SPEED_STEPS else soxr.resample(waveform, steps, _SPEED_STEPS)


def add_noise(waveform: np.ndarray, random: np.random.Generator, decibels: tuple[float, float]) -> np.ndarray:
    """Add stationary noise of a random color between white and brown.

    Args:
        decibels: the range of the signal-to-noise ratio.
    """
    noise = colored_noise(len(waveform), random.uniform(0.0, 2.0), random)
    ratio = 10 ** (random.uniform(*decibels) / 10)
    power = max(float(np.mean(np.square(waveform))), _TINY_POWER)
    return waveform + noise * np.float32(np.sqrt(power / ratio))


def reverberate(waveform: np.ndarray, random: np.random.Generator, seconds: tuple[float, float]) -> np.ndarray:
    """Add room reverberation. The result has the same length and no delay.

    The room's impulse response is the direct sound of amplitude 1, followed by noise that decays exponentially. The
    noise starts after 2 to 10 ms and has 10 to 50 percent of the energy of the direct sound.

    Args:
        seconds: the range of the time in which the echo decays by 60 decibels.
    """
    decay, echo = random.uniform(*seconds), random.uniform(0.1, 0.5)
    time = np.arange(max(round(decay * SAMPLE_RATE), 1)) / SAMPLE_RATE
    impulse = random.normal(size=len(time)) * 10 ** (-3 * time / decay)
    impulse[time < random.uniform(0.002, 0.010)] = 0
    impulse *= np.sqrt(echo / max(np.sum(np.square(impulse)), _TINY_POWER))
    impulse[0] = 1
    impulse = impulse.astype(np.float32)
    size = 2 ** (len(waveform) + len(impulse) - 1).bit_length()
    echoed = np.fft.irfft(np.fft.rfft(waveform, size) * np.fft.rfft(impulse, size), size)
    return echoed[: len(waveform)].astype(np.float32)


def colored_noise(size: int, slope: float, random: np.random.Generator) -> np.ndarray:
    """Return noise of unit power whose spectrum falls as 1 / frequency^slope above 50 Hz."""
    fast_size = 2 ** max(size - 1, 1).bit_length()  # a power of 2 for a fast FFT
    spectrum = np.fft.rfft(random.standard_normal(fast_size, np.float32))
    frequencies = np.fft.rfftfreq(fast_size, 1 / SAMPLE_RATE)
    noise = np.fft.irfft(spectrum * np.maximum(frequencies, 50) ** (-slope / 2), fast_size)[:size]
    return (noise / np.sqrt(max(float(np.mean(np.square(noise))), _TINY_POWER))).astype(np.float32)
