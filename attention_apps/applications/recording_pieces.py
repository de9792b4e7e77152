"""Recordings as pieces that a recognizer can listen to in batches."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_apps.preprocessing.audio import SAMPLE_RATE, audio_blocks
from attention_apps.preprocessing.pauses import cut_at_pauses, is_silent

# Seconds of a batch when padded to its longest piece.
BATCH_SECONDS = 160.0
# Pieces that are looked at together, to make batches of such as are alike in length.
_GROUP = 64
# Nothing that is shorter holds a word.
SHORTEST_SECONDS = 0.1
# What says its own sample rate.
_FILES = (str, os.PathLike, bytes, bytearray, memoryview)


@dataclass(frozen=True, eq=False)
class Piece:
    """Part of a recording that begins at `start` seconds, or, with `error`, why there is none."""

    source: Any
    is_last: bool
    start: float = 0.0
    waveform: np.ndarray | None = None
    error: str | None = None

    @property
    def seconds(self) -> float:
        return len(self.waveform) / SAMPLE_RATE

    @property
    def may_hold_speech(self) -> bool:
        """Whether it is worth listening to."""
        return self.error is None and self.seconds >= SHORTEST_SECONDS and not is_silent(self.waveform)


def cut_into_pieces(recording: Any, sample_rate: float | None, max_seconds: float) -> Iterator[Piece]:
    """The pieces of a recording, each handed on when the next is there, so that the last one is known as such.

    One that cannot be read, or not to its end, has a last piece with an error.
    """
    rate = None if isinstance(recording, _FILES) else sample_rate
    waiting = None
    try:
        for start, waveform in cut_at_pauses(audio_blocks(recording, rate), max_seconds):
            if waiting is not None:
                yield Piece(recording, False, *waiting)
            waiting = start, waveform
    except (ValueError, TypeError, OSError) as error:
        yield Piece(recording, True, error=str(error))
    else:
        yield Piece(recording, True, *waiting)


def group_pieces(pieces: Iterable[Piece], max_seconds: float) -> Iterator[list[Piece]]:
    """Pieces that are heard before any is answered for; in the middle of a recording, no more than fill a batch.

    Those of a long recording are alike in length anyway, and whoever waits for it wants to know how far it is.
    """
    batch = max(1, int(BATCH_SECONDS / max_seconds))
    group: list[Piece] = []
    for piece in pieces:
        group.append(piece)
        if len(group) >= (_GROUP if piece.is_last else batch):
            yield group
            group = []
    if group:
        yield group


def batch_pieces(pieces: Sequence[Piece]) -> Iterator[list[int]]:
    """The numbers of the pieces that may hold speech, in batches of such as are alike in length."""
    numbers = [number for number, piece in enumerate(pieces) if piece.may_hold_speech]
    batch: list[int] = []
    for number in sorted(numbers, key=lambda number: pieces[number].seconds):
        if batch and pieces[number].seconds * (len(batch) + 1) > BATCH_SECONDS:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
