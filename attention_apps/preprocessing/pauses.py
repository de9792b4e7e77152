"""Where a recording is silent, and where a long one can be cut."""

from collections.abc import Iterable, Iterator

import numpy as np

from attention_apps.preprocessing.audio import SAMPLE_RATE

# Seconds of a frame, and of the stretch that must be quiet for a cut in its middle.
FRAME_SECONDS = 0.01
_CUT_SECONDS = 0.25
# The earliest cut, as a part of the longest piece.
_EARLIEST = 0.3
# A recording that moves less than this, of a full scale of 1, has nothing on it.
SILENCE = 1e-4
# The threshold of speech lies between the levels of the quietest and of the loudest tenth, where they are at least so
# many decibels apart: at this part of the way up, and never more than so many decibels below the loudest.
LEAST_RANGE = 12.0
THRESHOLD = 0.35
MOST_BELOW = 25.0

# Samples of a frame.
FRAME = round(FRAME_SECONDS * SAMPLE_RATE)


def is_silent(waveform: np.ndarray) -> bool:
    """Whether nothing moves: digital silence, or a constant."""
    return not len(waveform) or float(np.ptp(waveform)) < 2 * SILENCE


def cut_at_pauses(blocks: Iterable[np.ndarray], max_seconds: float) -> Iterator[tuple[float, np.ndarray]]:
    """Cuts a recording that comes in blocks into pieces of at most `max_seconds`, at its quietest places.

    Yields:
        The second at which a piece begins, and its samples. No more than a piece and a block are in memory at a time.
    """
    longest, begin = round(max_seconds * SAMPLE_RATE), 0
    waiting = np.zeros(0, np.float32)
    for block in blocks:
        waiting = np.concatenate([waiting, block])
        while len(waiting) > longest:
            cut = _quietest_place(waiting[:longest])
            yield begin / SAMPLE_RATE, waiting[:cut]
            begin, waiting = begin + cut, waiting[cut:]
    if len(waiting):
        yield begin / SAMPLE_RATE, waiting


def loud_frames(waveform: np.ndarray) -> np.ndarray:
    """Whether there is more than background in each frame of `FRAME_SECONDS`, boolean `(frames,)`."""
    levels = _smooth(_levels(waveform), 3)
    quiet, loud = np.quantile(levels, [0.1, 0.9]) if len(levels) else (0.0, 0.0)
    if loud - quiet < LEAST_RANGE:
        return np.ones(len(levels), bool)
    return levels > max(quiet + THRESHOLD * (loud - quiet), loud - MOST_BELOW)


def _quietest_place(waveform):
    """The sample in the middle of the quietest stretch, the last of several."""
    levels = _smooth(_levels(waveform), round(_CUT_SECONDS / FRAME_SECONDS))
    first = int(_EARLIEST * len(levels))
    later = levels[first:]
    return (first + len(later) - 1 - int(np.argmin(later[::-1]))) * FRAME + FRAME // 2


def _levels(waveform):
    """The level of each frame in decibels."""
    count = len(waveform) // FRAME
    frames = np.asarray(waveform[: count * FRAME], np.float64).reshape(count, FRAME)
    return 10 * np.log10(np.square(frames).mean(axis=1) + 1e-10)


def _smooth(levels, width):
    """The mean over `width` frames around each, fewer at the ends."""
    if not len(levels):
        return levels
    kernel = np.ones(min(width, len(levels)))
    return np.convolve(levels, kernel, "same") / np.convolve(np.ones(len(levels)), kernel, "same")
