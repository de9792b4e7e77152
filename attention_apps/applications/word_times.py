"""When each word was said, from the frames that CTC spends on its letters."""

import itertools
from collections.abc import Sequence

import numpy as np

from attention_apps.applications.transcript import SpokenWord
from attention_apps.preprocessing.pauses import FRAME_SECONDS

# CTC tends to speak up in the middle of a letter: a word may have begun this many seconds before its first, and end
# this many after its last, as far as the recording is loud there.
MOST_BEFORE, MOST_AFTER = 0.35, 0.35


def letter_spans(alignment: np.ndarray | None, attention: np.ndarray) -> np.ndarray:
    """The positions of each letter, `(letters, 2)`: CTC's, or, where CTC finds no way, where attention looked most."""
    if alignment is not None:
        return alignment
    middles = np.maximum.accumulate(attention.argmax(axis=1))
    return np.stack([middles, middles + 1], axis=1)


def words_with_times(
    letters: Sequence[str],
    spans: np.ndarray,
    confidences: np.ndarray,
    frame_seconds: float,
    loud: np.ndarray,
    seconds: float,
) -> list[SpokenWord]:
    """The words among the letters, with their times in seconds.

    Args:
        spans: the positions of each letter, `(letters, 2)`.
        confidences: of each letter, from 0 to 1, `(letters,)`.
        frame_seconds: of one position.
        loud: whether there is sound in each `FRAME_SECONDS` of the recording.
        seconds: of the recording.
    """
    ranges = _word_ranges(letters)
    times = np.array([(spans[first, 0], spans[end - 1, 1]) for first, end in ranges]).reshape(-1, 2) * frame_seconds
    times = _stretch(np.minimum(times, seconds), loud, seconds)
    return [
        SpokenWord(
            "".join(letters[first:end]),
            round(float(start), 3),
            round(float(stop), 3),
            round(geometric_mean(confidences[first:end]), 4),
        )
        for (first, end), (start, stop) in zip(ranges, times, strict=True)
    ]


def geometric_mean(values: np.ndarray) -> float:
    return float(np.exp(np.mean(np.log(np.maximum(values, 1e-9))))) if len(values) else 0.0


def _word_ranges(letters):
    ranges, first = [], None
    for place, letter in enumerate([*letters, " "]):
        if letter != " ":
            first = place if first is None else first
        elif first is not None:
            ranges.append((first, place))
            first = None
    return ranges


def _stretch(times, loud, seconds):
    """Words from where the sound begins to where it ends; two words without a pause share the time between them."""
    stretched = times.copy()
    for number, (start, end) in enumerate(times):
        before = times[number - 1, 1] if number else 0.0
        after = times[number + 1, 0] if number + 1 < len(times) else seconds
        stretched[number, 0] = _onset(start, max(before, start - MOST_BEFORE), end, loud)
        stretched[number, 1] = _offset(end, min(after, end + MOST_AFTER), start, loud)
    for left, right in itertools.pairwise(stretched):
        if left[1] > right[0]:
            left[1] = right[0] = (left[1] + right[0]) / 2
    return stretched


def _onset(start, earliest, latest, loud):
    """Where the sound that is on at `start` began, or, where none is on, where the next one does."""
    frame = round(start / FRAME_SECONDS)
    if frame < len(loud) and not loud[frame]:
        coming = np.flatnonzero(loud[frame : round(latest / FRAME_SECONDS)])
        return (frame + coming[0]) * FRAME_SECONDS if len(coming) else start
    while 0 < frame <= len(loud) and loud[frame - 1] and frame * FRAME_SECONDS > earliest:
        frame -= 1
    return min(max(frame * FRAME_SECONDS, earliest), start)


def _offset(end, latest, earliest, loud):
    """Where the sound that is on at `end` stops, or, where none is on, where the one before did."""
    frame = round(end / FRAME_SECONDS)
    if 0 < frame <= len(loud) and not loud[frame - 1]:
        gone = np.flatnonzero(loud[round(earliest / FRAME_SECONDS) : frame])
        return (round(earliest / FRAME_SECONDS) + gone[-1] + 1) * FRAME_SECONDS if len(gone) else end
    while frame < len(loud) and loud[frame] and frame * FRAME_SECONDS < latest:
        frame += 1
    return max(min(frame * FRAME_SECONDS, latest), end)
