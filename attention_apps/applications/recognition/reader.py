"""Recordings as waveforms, cut at pauses where they are long."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from attention_apps.applications.parts import RawInput, Reading, Source, Tensors
from attention_apps.applications.recognition.config import RecognizerConfig, TranscriptOptions
from attention_apps.preprocessing.audio import (
    HIGHEST_RATE,
    LOWEST_RATE,
    MAX_CHANNELS,
    SAMPLE_RATE,
    audio_blocks,
    header_seconds,
)
from attention_apps.preprocessing.audio_features import cut_at_pauses, is_silent, is_silent_in_graph
from attention_apps.preprocessing.wav_graph import AudioStatus, are_sounds, decode_wavs
from attention_apps.serving import DEFAULT_SIGNATURE

WAVEFORM_SIGNATURE = "waveform"
OK, UNCLEAR, SILENT, TOO_SHORT = "ok", "unclear", "silent", "audio too short"
STATUSES = {
    AudioStatus.DECODED: OK,
    AudioStatus.BROKEN: "undecodable audio",
    AudioStatus.UNSUPPORTED: "unsupported audio format",
    AudioStatus.TOO_LONG: "audio too long",
}
# Shorter recordings hold no word.
MIN_SECONDS = 0.1
# Seconds of a batch, padded to its longest recording.
_BATCH_SECONDS = 160.0
# Inputs that name their own sample rate.
_FILES = (str, os.PathLike, bytes, bytearray, memoryview)


class AudioReader:
    """Reads recordings: paths, bytes of files, and `(samples, rate)` pairs, or in a graph the bytes of WAV files."""

    max_batch_length = _BATCH_SECONDS
    signature: ClassVar[Mapping[str, tf.TensorSpec]] = {
        "waveform": tf.TensorSpec((None, None), tf.float32),
        "length": tf.TensorSpec((None,), tf.int32),
    }

    def __init__(self, config: RecognizerConfig):
        self.config = config
        self.max_samples = round(config.max_seconds * SAMPLE_RATE)

    def read(self, item: Any, options: TranscriptOptions) -> Reading:
        recording, rate = item if isinstance(item, tuple) else (item, None)
        rate = None if isinstance(recording, _FILES) else rate
        pieces = cut_at_pauses(audio_blocks(recording, rate), self.config.max_seconds)
        return Reading((make_source(waveform, start) for start, waveform in pieces), item)

    def read_files(self, audio_bytes: tf.Tensor) -> tuple[Tensors, Tensors]:
        """Graph code: the bytes of WAV files, strings `(batch,)`."""
        waveform, lengths, status = decode_wavs(audio_bytes, self.max_samples)
        return self._check(waveform, lengths, tf.gather(list(STATUSES.values()), status))

    def read_waveforms(self, waveform: tf.Tensor, length: tf.Tensor) -> tuple[Tensors, Tensors]:
        """Graph code: samples `(batch, samples)`, of which `length` `(batch,)` are real."""
        size = tf.shape(waveform)[1]
        lengths = tf.clip_by_value(length, 0, size)
        are_good = are_sounds(tf.where(tf.sequence_mask(lengths, size), waveform, 0.0))
        status = tf.where(are_good, OK, STATUSES[AudioStatus.BROKEN])
        status = tf.where(lengths > self.max_samples, STATUSES[AudioStatus.TOO_LONG], status)
        return self._check(waveform, lengths, status)

    def _check(self, waveform, lengths, status):
        """Leave no samples of recordings that are not answered."""
        status = tf.where((status == OK) & is_silent_in_graph(waveform, lengths), SILENT, status)
        is_short = tf.cast(lengths, tf.float64) / SAMPLE_RATE < MIN_SECONDS
        status = tf.where(((status == OK) | (status == SILENT)) & is_short, TOO_SHORT, status)
        lengths = tf.where(status == OK, lengths, 0)
        waveform = waveform[:, : tf.maximum(tf.reduce_max(lengths), 1)]
        return {"waveform": waveform, "length": lengths}, {"status": status}

    def raw_inputs(self) -> dict[str, RawInput]:
        noise = np.random.default_rng(0).normal(0, 0.1, SAMPLE_RATE).astype(np.float32)
        contents = tf.audio.encode_wav(noise[:, np.newaxis], SAMPLE_RATE).numpy()
        limit = f"at most {self.config.max_seconds:g} seconds"
        file_note = (
            "the bytes of WAV files: PCM of 8, 16, 24 or 32 bits, or floats of 32 or 64; "
            f"1 to {MAX_CHANNELS} channels, which are averaged; {LOWEST_RATE:,} to {HIGHEST_RATE:,} samples a second, "
            f"resampled to {SAMPLE_RATE:,}; {limit} each"
        )
        waveform_notes = {
            "waveform": f"samples from -1 to 1, {SAMPLE_RATE:,} a second, one channel; {limit}",
            "length": "the number of real samples; the samples after them are padding",
        }
        files = {"audio_bytes": tf.TensorSpec([None], tf.string)}
        example: dict[str, list] = {"waveform": [noise], "length": [len(noise)]}
        return {
            DEFAULT_SIGNATURE: RawInput(
                self.read_files, files, {"audio_bytes": [contents]}, {"audio_bytes": file_note}
            ),
            WAVEFORM_SIGNATURE: RawInput(self.read_waveforms, dict(self.signature), example, waveform_notes),
        }

    @contextlib.contextmanager
    def progress(self, quiet: bool) -> Iterator[Callable[[Reading, Source, bool], None]]:
        """A progress bar on the terminal of stderr for each recording that is heard in several pieces."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = TextColumn("{task.completed:.0f} s"), BarColumn(), TimeRemainingColumn()
        # Redirected, what the caller prints would come out where the bar is.
        bar = Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
        tasks = []

        def update(reading: Reading, source: Source, is_last: bool) -> None:
            if is_last and tasks:  # gone before the result is printed
                bar.stop()
                bar.remove_task(tasks.pop())
            elif not is_last and not quiet and console.is_terminal:
                if not tasks:
                    total = None
                    if isinstance(reading.item, str | os.PathLike):
                        with contextlib.suppress(ValueError, OSError):
                            total = header_seconds(reading.item)
                    tasks.append(bar.add_task("listening", total=total))
                    bar.start()
                bar.update(tasks[0], completed=source.place[1])

        try:
            yield update
        finally:
            if tasks:  # rich ends the line even of a bar that never started
                bar.stop()


def make_source(waveform: np.ndarray, start: float = 0.0) -> Source:
    """A piece of a recording that begins at `start` seconds. Nothing is heard in one that is silent or too short."""
    seconds = len(waveform) / SAMPLE_RATE
    place = (start, start + seconds)
    if seconds < MIN_SECONDS or is_silent(waveform):
        return Source(None, seconds, place)
    return Source({"waveform": waveform, "length": np.array(len(waveform), np.int32)}, seconds, place)
